package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

// tidy brings the disk to what the store says of it. Every write begins with it,
// so that a bad file is out of the way before another one takes its name, and so
// that what a failed write may have left is not found by the next Open.
func (s *Store) tidy() (err error) {
	defer func() { s.tidyErr = err }()
	for len(s.untidy) > 0 {
		if err := s.clean(s.untidy[0]); err != nil {
			return fmt.Errorf("remove temporary files: %w", err)
		}
		s.untidy = s.untidy[1:]
	}
	for len(s.moves) > 0 {
		if err := s.move(s.moves[0]); err != nil {
			return fmt.Errorf("quarantine %s: %w", s.moves[0].from, err)
		}
		s.moves = s.moves[1:]
	}
	if s.undo != nil {
		if err := s.undo(); err != nil {
			return fmt.Errorf("undo an earlier write: %w", err)
		}
		s.undo = nil
	}
	return nil
}

func (s *Store) clean(dir string) error {
	sub, err := s.dir.Sub(dir)
	if err != nil {
		return err
	}
	return sub.Clean()
}

func (s *Store) move(m move) error {
	if err := s.dir.Mkdir(path.Dir(m.to), 0o700); err != nil {
		return err
	}
	err := s.dir.Rename(m.from, m.to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // an earlier attempt moved it
	}
	return err
}

// write replaces a file, of which the store says that it holds old; nil: that it
// is absent. After an error the next write puts that back.
func (s *Store) write(name string, data, old []byte) error {
	err := s.dir.WriteFile(name, data, 0o600)
	if err == nil {
		return nil
	}
	s.undo = func() error {
		if old == nil {
			return s.dir.RemoveAll(name)
		}
		return s.dir.WriteFile(name, old, 0o600)
	}
	return err
}

// plant makes a directory that the store says is absent.
func (s *Store) plant(name string, t durable.Tree) error {
	err := s.dir.WriteTree(name, t)
	if err != nil {
		s.undo = func() error { return s.dir.RemoveAll(name) }
	}
	return err
}

// remove removes what the store says is absent already. After an error the next
// write tries again.
func (s *Store) remove(name string) error {
	err := s.dir.RemoveAll(name)
	if err != nil {
		s.undo = func() error { return s.dir.RemoveAll(name) }
	}
	return err
}
