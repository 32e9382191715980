package store

import (
	"errors"
	"fmt"
	"io/fs"
)

// ErrChanged is the error of a SetState on another state than the stored one.
var ErrChanged = errors.New("the state has changed meanwhile")

// SetState stores the state of a workload that has one generation or more. Its
// number must be that of the stored state, or else the error is [ErrChanged]. It
// returns what is stored now, with the next number.
func (s *Store) SetState(k Key, state State) (State, error) {
	stored, err := s.setState(k, state.clone())
	if err != nil {
		return State{}, fmt.Errorf("set state of %s: %w", k, err)
	}
	return stored.clone(), nil
}

func (s *Store) setState(k Key, state State) (State, error) {
	w, ok := s.workloads[k]
	if !ok {
		return State{}, fmt.Errorf("no such workload: %w", fs.ErrNotExist)
	}
	if state.Number != w.State.Number {
		return State{}, fmt.Errorf("number %d is stored, not %d: %w", w.State.Number, state.Number, ErrChanged)
	}
	old, err := sealed("state", w.State, w.State.Number == 0)
	if err != nil {
		return State{}, err
	}
	state.Number++
	data, err := seal("state", state)
	if err != nil {
		return State{}, err
	}
	if err := s.write(k.at("state.json"), data, old); err != nil {
		return State{}, err
	}
	w.State = state
	w.stateLost = w.stateLost && state.KnownGood == 0
	return state, nil
}

// SetNode stores the identity of the node.
func (s *Store) SetNode(n Node) error {
	n.Format = Format
	if n == s.node {
		return nil
	}
	if err := s.setNode(n); err != nil {
		return fmt.Errorf("set node: %w", err)
	}
	return nil
}

func (s *Store) setNode(n Node) error {
	old, err := sealed("node", s.node, s.node == Node{})
	if err != nil {
		return err
	}
	data, err := seal("node", n)
	if err != nil {
		return err
	}
	if err := s.write("node.json", data, old); err != nil {
		return err
	}
	s.node = n
	return nil
}

// sealed is seal for what is on disk, nil if nothing is.
func sealed(kind string, body any, absent bool) ([]byte, error) {
	if absent {
		return nil, nil
	}
	return seal(kind, body)
}
