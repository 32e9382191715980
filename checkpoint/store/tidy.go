package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

// task is something to be done about the file or directory at a path; "" for what
// concerns no write.
type task struct {
	at, what string
	do       func() error
}

// every is the path that stands for all of them.
const every = "."

// tidy tries all tasks that are left, and says whether those at a path are done:
// a bad file is not written over before it is in quarantine, and what a failed
// write left is not built upon. What fails elsewhere only stays in [Store.Problems],
// so that one broken directory does not stop the writes to all others.
func (s *Store) tidy(at string) error {
	var left []task
	var here error
	s.tidyErr = nil
	for _, t := range s.tasks {
		err := t.do()
		if err == nil {
			continue
		}
		left = append(left, t)
		err = fmt.Errorf("%s: %w", t.what, err)
		s.tidyErr = errors.Join(s.tidyErr, err)
		if t.at == at || at == every && t.at != "" {
			here = errors.Join(here, err)
		}
	}
	s.tasks = left
	return here
}

// clean has the temporary files in a directory removed.
func (s *Store) clean(dir string) {
	s.tasks = append(s.tasks, task{"", "remove temporary files", func() error {
		sub, err := s.dir.Sub(dir)
		if err != nil {
			return err
		}
		return sub.Clean()
	}})
}

// move has something moved into quarantine.
func (s *Store) move(from, to string) {
	s.tasks = append(s.tasks, task{from, "quarantine " + from, func() error {
		if err := s.dir.Mkdir(path.Dir(to), 0o700); err != nil {
			return err
		}
		err := s.dir.Rename(from, to)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // an earlier attempt moved it
		}
		return err
	}})
}

// undo has the disk brought back to what the store says of it.
func (s *Store) undo(name string, do func() error) {
	s.tasks = append(s.tasks, task{name, "undo a failed write", do})
}

// write replaces a file, of which the store says that it holds old; nil: that it
// is absent. If it fails and the file is not as before, the next write puts that
// back.
func (s *Store) write(name string, data, old []byte) error {
	if err := s.tidy(name); err != nil {
		return err
	}
	err := s.dir.WriteFile(name, data, 0o600)
	if err == nil || s.unchanged(name, old) {
		return err
	}
	s.undo(name, func() error {
		if old == nil {
			return s.dir.RemoveAll(name)
		}
		return s.dir.WriteFile(name, old, 0o600)
	})
	return err
}

// unchanged says that a file still has old bytes, which were durable, or is still
// absent: then a full disk, on which nothing can be put back, hinders nobody.
func (s *Store) unchanged(name string, old []byte) bool {
	found, err := s.dir.ReadFile(name)
	if old == nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return err == nil && bytes.Equal(found, old)
}

// plant makes a directory that the store says is absent, by way of dir.
func (s *Store) plant(dir *durable.Dir, name string, t durable.Tree) error {
	if err := s.tidy(name); err != nil {
		return err
	}
	err := dir.WriteTree(name, t)
	if err == nil || s.unchanged(name, nil) {
		return err
	}
	s.undo(name, func() error { return s.dir.RemoveAll(name) })
	return err
}
