package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
)

// setAside has a bad file of a workload moved into its quarantine.
func (s *Store) setAside(w *workload, name string, why error) {
	to := free(w.aside, path.Base(name))
	s.move(w.Key.at(name), w.Key.at("quarantine/"+to))
	w.Problems = append(w.Problems, fmt.Sprintf("%s: moved to quarantine/%s: %v", name, to, why))
}

// free takes a name that is not taken.
func free(taken map[string]bool, name string) string {
	found := name
	for n := 2; taken[found]; n++ {
		found = fmt.Sprintf("%s.%d", name, n)
	}
	taken[found] = true
	return found
}

// losePayload sets a bad payload aside, into the first workload that has it, and
// then every generation that names it.
func (s *Store) losePayload(payload string, why error) {
	moved := errors.Is(why, fs.ErrNotExist)
	for _, k := range s.keys() {
		w := s.workloads[k]
		for _, g := range w.Generations {
			if !slices.Contains(g.payloads(), payload) {
				continue
			}
			if !moved {
				to := free(w.aside, "payload-"+payload)
				s.move(payloadDir(payload), k.at("quarantine/"+to))
				moved = true
			}
			s.setAside(w, fmt.Sprintf("generations/%d.json", g.Seq), why)
		}
		w.Generations = slices.DeleteFunc(w.Generations, func(g Generation) bool { return slices.Contains(g.payloads(), payload) })
	}
	delete(s.payloads, payload)
}
