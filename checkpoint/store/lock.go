package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"
)

// ErrLocked is the error of a store that another process writes to.
var ErrLocked = errors.New("another daemon has it")

// LockPath is the file of the writer's lock of the store at path. Nobody ever
// removes it: who waits for it would wait for a file that is no longer there.
func LockPath(path string) string { return filepath.Join(path, "lock") }

// Lock is the writer's lock of a store. It is held until Release or until the
// process ends, however it ends: the kernel gives the lock back.
type Lock struct{ file *flock.Flock }

// TryLock takes the writer's lock of the store at path, which must exist. If
// another process has it, the error is [ErrLocked] and names that process, by
// what it wrote into the file.
func TryLock(path string) (*Lock, error) {
	return take(path, func(file *flock.Flock) error {
		got, err := file.TryLock()
		if err == nil && !got {
			holder, _ := os.ReadFile(file.Path())
			return fmt.Errorf("%w (%s)", ErrLocked, strings.TrimSpace(string(holder)))
		}
		return err
	})
}

// AwaitLock is TryLock that blocks in the kernel, where the lock table shows it
// as a waiter, until it is its turn. Nothing ends the wait but the end of the
// process.
func AwaitLock(path string) (*Lock, error) {
	return take(path, (*flock.Flock).Lock)
}

// LockDir is TryLock for a caller that needs no more than to give it back.
func LockDir(path string) (release func(), err error) {
	lock, err := TryLock(path)
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}

func take(path string, how func(*flock.Flock) error) (*Lock, error) {
	name := LockPath(path)
	for {
		lock := &Lock{flock.New(name, flock.SetFlag(os.O_RDWR|os.O_CREATE), flock.SetPermissions(0o600))}
		if err := how(lock.file); err != nil {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		held, err := lock.held()
		if err == nil && held {
			// For people only, so that a full disk does not matter.
			host, _ := os.Hostname()
			_ = os.WriteFile(name, fmt.Appendf(nil, "process %d on %s\n", os.Getpid(), host), 0o600)
			return lock, nil
		}
		lock.Release()
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
	}
}

// Held tells whether the file that is locked is still the one at its path. If
// somebody has removed or replaced it, another process may write too: who holds
// the lock gives up and takes it again.
func (l *Lock) Held() bool {
	held, err := l.held()
	return held || err != nil // nobody knows otherwise
}

func (l *Lock) held() (bool, error) {
	ours, err := l.file.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(l.file.Path())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(ours, there), err
}

// Release gives the lock to the next one that waits.
func (l *Lock) Release() { _ = l.file.Close() }
