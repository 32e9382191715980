package store

import (
	"fmt"
	"maps"
	"slices"
)

// kept is how many of its newest generations a workload keeps in any case.
const kept = 5

// Prune removes what nobody needs: activations that are neither live nor named by
// the state of a workload; then generations but the newest 5, the known-good one
// and those of an activation that is left; then payloads that no generation names.
// What is in quarantine stays. If nothing is to be removed, no disk is touched.
func (s *Store) Prune(live func(activation string) bool) error {
	if err := s.prune(live); err != nil {
		return fmt.Errorf("prune: %w", err)
	}
	return nil
}

func (s *Store) prune(live func(activation string) bool) error {
	// All of them: a record that was not committed must not lose its payloads, nor
	// one that is on its way into quarantine.
	if err := s.tidy(every); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(s.activations)) {
		if live(id) || s.stateNames(id) {
			continue
		}
		s.activations[id] = removed
		if err := s.dir.RemoveAll("activations/" + id); err != nil {
			return err
		}
		delete(s.activations, id)
		delete(s.unlabelled, id)
	}
	used := map[string]bool{}
	for _, k := range s.keys() {
		if err := s.pruneGenerations(s.workloads[k]); err != nil {
			return err
		}
		for _, g := range s.workloads[k].Generations {
			for _, payload := range g.Payloads {
				used[payload] = true
			}
		}
	}
	for _, payload := range slices.Sorted(maps.Keys(s.payloads)) {
		if used[payload] {
			continue
		}
		if err := s.removePayload(payload); err != nil {
			return err
		}
	}
	return nil
}

// removePayload removes one that no generation names, and believes nothing of it
// until it is gone.
func (s *Store) removePayload(payload string) error {
	s.payloads[payload] = false
	if err := s.dir.RemoveAll(payloadDir(payload)); err != nil {
		return err
	}
	delete(s.payloads, payload)
	return nil
}

func (s *Store) stateNames(activation string) bool {
	for _, w := range s.workloads {
		a, h := w.State.Activation, w.State.Handoff
		if a != nil && a.ID == activation || h != nil && h.Activation == activation {
			return true
		}
	}
	return false
}

func (s *Store) pruneGenerations(w *workload) error {
	needed := map[int64]bool{w.State.KnownGood: true}
	if a := w.State.Activation; a != nil {
		needed[a.Generation] = true
	}
	for _, of := range s.activations {
		if of == (stage{}) {
			return nil // any generation may be the one
		}
		if of.of(w.Key, of.Generation) {
			needed[of.Generation] = true
		}
	}
	// A copy, since generations go on the way; oldest first.
	for i, g := range slices.Backward(slices.Clone(w.Generations)) {
		if i < kept || needed[g.Seq] || w.stateLost {
			continue
		}
		// Before it is tried, since nobody may build upon it any more.
		w.Generations = slices.Delete(w.Generations, i, i+1)
		remove := func() error { return s.dir.RemoveAll(w.Key.record(g.Seq)) }
		if err := remove(); err != nil {
			s.undo(w.Key.record(g.Seq), remove)
			return err
		}
	}
	return nil
}
