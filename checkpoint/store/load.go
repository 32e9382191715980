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
	temps := false
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), durable.TempPrefix) {
			names = append(names, e.Name())
			continue
		}
		temps = true
	}
	if temps {
		s.clean(dir)
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
		node.Format = Format
		s.node = node
	case s.isBad(err):
		// No identity is that of a node on which nothing was stored. Whoever compares
		// it with another one must know that it was lost.
		to := "quarantine/" + free(s.aside, "node.json")
		s.move("node.json", to)
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
		w.last = max(w.last, number(name))
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
		seq := number(name)
		if seq == 0 || name != path.Base(w.Key.record(seq)) {
			s.foreign(w.Key.at("generations/" + name))
			continue
		}
		w.last = max(w.last, seq)
		g, err := s.loadGeneration(w.Key, seq)
		switch {
		case s.isBad(err):
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

// number returns the number in the name of a record, also of one in quarantine,
// so that it is not used again; 0: there is none.
func number(name string) int64 {
	digits, _, _ := strings.Cut(name, ".json")
	seq, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || seq < 1 {
		return 0
	}
	return seq
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
	case s.isBad(err):
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
