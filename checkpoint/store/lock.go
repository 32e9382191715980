package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrLocked is the error of a store that another process writes to.
var ErrLocked = errors.New("another daemon has it")

// LockDir takes the writer's lock of the store at path, which must exist, until
// release is called or the process ends, however it ends: the kernel gives the
// lock back. It does not wait: if another process has the lock, the error is
// [ErrLocked] and names that process, by what it wrote into the file.
func LockDir(path string) (release func(), err error) {
	name := filepath.Join(path, "lock")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		holder, _ := io.ReadAll(io.LimitReader(f, 256))
		return nil, fmt.Errorf("lock %s: %w (%s)", name, ErrLocked, strings.TrimSpace(string(holder)))
	}
	// For people only, so that a full disk does not matter.
	host, _ := os.Hostname()
	_ = f.Truncate(0)
	_, _ = fmt.Fprintf(f, "process %d on %s\n", os.Getpid(), host)
	return func() { _ = f.Close() }, nil
}
