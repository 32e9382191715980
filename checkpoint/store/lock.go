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

// LockDir takes the writer's lock of the store at path, which must exist, until
// release is called or the process ends, however it ends: the kernel gives the
// lock back. It does not wait: if another process has the lock, the error is
// [ErrLocked] and names that process, by what it wrote into the file.
func LockDir(path string) (release func(), err error) {
	name := filepath.Join(path, "lock")
	lock := flock.New(name, flock.SetFlag(os.O_RDWR|os.O_CREATE), flock.SetPermissions(0o600))
	got, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	if !got {
		holder, _ := os.ReadFile(name)
		return nil, fmt.Errorf("lock %s: %w (%s)", name, ErrLocked, strings.TrimSpace(string(holder)))
	}
	// For people only, so that a full disk does not matter.
	host, _ := os.Hostname()
	_ = os.WriteFile(name, fmt.Appendf(nil, "process %d on %s\n", os.Getpid(), host), 0o600)
	return func() { _ = lock.Close() }, nil
}
