package store

import (
	"fmt"
	"slices"
)

func (s *Store) loadPayloads() error {
	names, err := s.list("payloads")
	for _, name := range names {
		if !isHex(name, 64) {
			s.foreign("payloads/" + name)
			continue
		}
		s.payloads[name] = false
	}
	return err
}

// verifyPayloads reads each payload that a generation names.
func (s *Store) verifyPayloads() error {
	seen := map[string]bool{}
	for _, k := range s.keys() {
		// A copy, since generations are set aside on the way.
		for _, g := range slices.Clone(s.workloads[k].Generations) {
			for _, payload := range g.payloads() {
				if seen[payload] {
					continue
				}
				seen[payload] = true
				_, err := s.readPayload(payload)
				switch {
				case s.isBad(err):
					s.losePayload(payload, err)
				case err != nil:
					return err
				default:
					s.payloads[payload] = true
				}
			}
		}
	}
	return nil
}

func (s *Store) readPayload(payload string) ([]payloadFile, error) {
	name := payloadDir(payload) + "/payload.json"
	data, err := s.dir.ReadFile(name)
	if err != nil {
		return nil, err
	}
	files, err := decode(data, payload)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return files, nil
}

func (s *Store) loadActivations() error {
	ids, err := s.list("activations")
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !isHex(id, 32) {
			s.foreign("activations/" + id)
			continue
		}
		var of stage
		name := "activations/" + id + "/activation.json"
		found, err := s.read("activation", name, &of)
		switch {
		case s.isBad(err) || !found:
			// It may be mounted. Prune keeps it while it is live, and all generations.
			s.problems = append(s.problems, fmt.Sprintf("%s: it can't be told of which generation this is", name))
			of = stage{}
		case err != nil:
			return err
		}
		s.activations[id] = of
		s.lookThrough("activations/" + id)
		if w, ok := s.workloads[Key{of.Namespace, of.Workload}]; ok {
			w.last = max(w.last, of.Generation)
		}
	}
	return nil
}

// lookThrough finds what a crash of Refresh left in an activation. Nothing hangs on
// it, so that what can't be read hinders nobody.
func (s *Store) lookThrough(activation string) {
	names, _ := s.list(activation)
	for _, name := range names {
		if name != "activation.json" {
			_, _ = s.list(activation + "/" + name)
		}
	}
}
