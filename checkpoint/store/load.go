package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

// load reads everything and writes nothing: a newer format must be left as it is.
func (s *Store) load() error {
	if _, err := s.list("."); err != nil {
		return err
	}
	if err := s.loadNode(); err != nil {
		return err
	}
	if err := s.loadPayloads(); err != nil {
		return err
	}
	namespaces, err := s.list("workloads")
	if err != nil {
		return err
	}
	for _, namespace := range namespaces {
		workloads, err := s.list("workloads/" + namespace)
		if err != nil {
			return err
		}
		for _, name := range workloads {
			k := Key{namespace, name}
			if err := k.check(); err != nil {
				s.foreign("workloads/" + k.String())
				continue
			}
			if err := s.loadWorkload(k); err != nil {
				return err
			}
		}
	}
	if err := s.loadActivations(); err != nil {
		return err
	}
	return s.verifyPayloads()
}

// list returns the names in a directory, which may be absent, and remembers it if
// temporary files are there.
func (s *Store) list(dir string) ([]string, error) {
	entries, err := s.dir.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, syscall.ENOTDIR):
		s.foreign(dir)
		return nil, nil
	case err != nil:
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), durable.TempPrefix) {
			names = append(names, e.Name())
			continue
		}
		if !slices.Contains(s.untidy, dir) {
			s.untidy = append(s.untidy, dir)
		}
	}
	return names, nil
}

// foreign names what is not of this package, and is left alone.
func (s *Store) foreign(name string) {
	s.problems = append(s.problems, fmt.Sprintf("%s is not one of the store's own files, and is left alone", name))
}

// read reads one sealed file into body. It tells absent from bad.
func (s *Store) read(kind, name string, body any) (found bool, err error) {
	data, err := s.dir.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	if err := unseal(kind, data, body); err != nil {
		return true, fmt.Errorf("%s: %w", name, err)
	}
	return true, nil
}

func (s *Store) loadNode() error {
	aside, err := s.list("quarantine")
	if err != nil {
		return err
	}
	for _, name := range aside {
		s.aside[name] = true
		s.problems = append(s.problems, lookAt(name))
	}
	var node Node
	found, err := s.read("node", "node.json", &node)
	switch {
	case err == nil && found:
		node.Format = format
		s.node = node
	case isBad(err):
		// No identity is that of a node on which nothing was stored. Whoever compares
		// it with another one must know that it was lost.
		to := "quarantine/" + free(s.aside, "node.json")
		s.moves = append(s.moves, move{"node.json", to})
		s.problems = append(s.problems, fmt.Sprintf("node.json: moved to %s, the node's identity is lost: %v", to, err))
	case err != nil:
		return err
	}
	return nil
}

// lookAt is the problem of what an earlier Open, or Stage, moved into quarantine.
func lookAt(name string) string {
	return "quarantine/" + name + ": it was found bad; remove it when it was looked at"
}

func (s *Store) loadWorkload(k Key) error {
	w := &workload{Workload: Workload{Key: k}, aside: map[string]bool{}}
	if _, err := s.list("workloads/" + k.String()); err != nil {
		return err
	}
	aside, err := s.list(k.at("quarantine"))
	if err != nil {
		return err
	}
	for _, name := range aside {
		w.aside[name] = true
		w.saw(name)
		w.Problems = append(w.Problems, lookAt(name))
		w.stateLost = w.stateLost || strings.HasPrefix(name, "state.json")
	}
	if err := s.loadGenerations(w); err != nil {
		return err
	}
	found, err := s.loadState(w)
	if err != nil {
		return err
	}
	// A crash of the first Commit leaves directories, and no workload.
	if found || len(w.Generations) > 0 || len(w.Problems) > 0 {
		s.workloads[k] = w
	}
	return nil
}

func (s *Store) loadGenerations(w *workload) error {
	names, err := s.list(w.Key.at("generations"))
	if err != nil {
		return err
	}
	for _, name := range names {
		seq, ok := w.saw(name)
		if !ok || name != path.Base(w.Key.record(seq)) {
			s.foreign(w.Key.at("generations/" + name))
			continue
		}
		g, err := s.loadGeneration(w.Key, seq)
		switch {
		case isBad(err):
			s.setAside(w, "generations/"+name, err)
		case err != nil:
			return err
		default:
			w.Generations = append(w.Generations, g)
		}
	}
	slices.SortFunc(w.Generations, func(a, b Generation) int { return int(b.Seq - a.Seq) })
	return nil
}

// saw notes the number in the name of a record, so that it is not used again.
func (w *workload) saw(name string) (seq int64, ok bool) {
	number, _, _ := strings.Cut(name, ".json")
	seq, err := strconv.ParseInt(number, 10, 64)
	if err != nil || seq < 1 {
		return 0, false
	}
	w.last = max(w.last, seq)
	return seq, true
}

func (s *Store) loadGeneration(k Key, seq int64) (Generation, error) {
	var r record
	if _, err := s.read("generation", k.record(seq), &r); err != nil {
		return Generation{}, err
	}
	if r.Namespace != k.Namespace || r.Workload != k.Workload || r.Seq != seq {
		return Generation{}, fmt.Errorf("%s: %w", k.record(seq),
			errBad(fmt.Sprintf("it is generation %d of %s/%s", r.Seq, r.Namespace, r.Workload)))
	}
	return Generation{
		Seq: seq, Pod: r.Pod, Spec: digest(r.Pod), Payloads: r.Payloads, Source: r.Source, Written: r.Written,
	}, nil
}

// loadState takes an empty state for a bad one. That is the cautious one: with no
// known-good, no generation has evidence that it does not have, and Prune keeps
// them all; with no activation or handoff, a checkpoint that runs is still seen by
// its manifest and by the runtime, and a handoff has all of its conditions and
// delays before it once more; the counters at 0 only shorten a backoff.
func (s *Store) loadState(w *workload) (found bool, err error) {
	var state State
	found, err = s.read("state", w.Key.at("state.json"), &state)
	switch {
	case isBad(err):
		s.setAside(w, "state.json", err)
	case err != nil:
		return found, err
	default:
		w.State = state
	}
	w.last = max(w.last, w.State.KnownGood)
	if a := w.State.Activation; a != nil {
		w.last = max(w.last, a.Generation)
	}
	w.stateLost = (w.stateLost || err != nil) && w.State.KnownGood == 0
	return found, nil
}

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
				case isBad(err):
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
		case isBad(err) || !found:
			// It may be mounted. Prune keeps it while it is live, and all generations.
			s.problems = append(s.problems, fmt.Sprintf("%s: it can't be told of which generation this is", name))
			of = stage{}
		case err != nil:
			return err
		}
		s.activations[id] = of
		if w, ok := s.workloads[Key{of.Namespace, of.Workload}]; ok {
			w.last = max(w.last, of.Generation)
		}
	}
	return nil
}
