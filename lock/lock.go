package lock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld is what Try returns while somebody else holds the lock.
var ErrHeld = errors.New("held by another process")

// Lock is held from Acquire until the process ends. It has no method to give
// it back, and needs no variable that keeps it alive.
//
// It keeps a bare descriptor: gofrs/flock, and os.File below it, do not give
// theirs out, so that it could not be made to survive Exec, and close it when
// the garbage collector finds them unused.
type Lock struct {
	fd   int
	path string
}

// Acquire blocks in the kernel until this process holds the lock file at path
// and that file is still the one at path. It creates the file where it is
// absent, for everybody to lock, but never its directory. A signal does not
// end the wait; the caller that wants to give up ends the process.
func Acquire(path string) (*Lock, error) {
	return acquire(path, unix.LOCK_EX)
}

// Try is Acquire without the wait: the error is ErrHeld where it would block.
func Try(path string) (*Lock, error) {
	return acquire(path, unix.LOCK_EX|unix.LOCK_NB)
}

func acquire(path string, how int) (*Lock, error) {
	for {
		fd, err := open(path)
		if err != nil {
			return nil, err
		}
		err = again(func() error { return unix.Flock(fd, how) })
		if err == nil {
			var current bool
			if current, err = isAt(path, fd); current {
				l := &Lock{fd, path}
				l.stamp()
				return l, nil
			}
		}
		_ = unix.Close(fd)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil, fmt.Errorf("lock %s: %w", path, ErrHeld)
		case err != nil:
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}

// open returns a read-only descriptor, which is all that flock needs: a program
// without root may wait on a file that root made.
func open(path string) (int, error) {
	for {
		fd, err := openat(path, unix.O_RDONLY)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return fd, explain(path, err)
		}
		fd, err = openat(path, unix.O_RDONLY|unix.O_CREAT|unix.O_EXCL)
		switch {
		case errors.Is(err, fs.ErrExist): // another waiter was faster
		case err != nil:
			return -1, explain(path, err)
		default:
			// Whoever takes the lock sets the time of the file, which needs
			// write permission, whatever the umask of the one who came first.
			if err := unix.Fchmod(fd, 0o666); err != nil {
				_ = unix.Close(fd)
				return -1, fmt.Errorf("chmod %s: %w", path, err)
			}
			return fd, nil
		}
	}
}

func openat(path string, flags int) (fd int, err error) {
	err = again(func() error {
		fd, err = unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0o666)
		return err
	})
	return fd, err
}

func explain(path string, err error) error {
	if err == nil {
		return nil
	}
	if dir := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Stat(dir); errors.Is(statErr, fs.ErrNotExist) {
			return fmt.Errorf("open lock %s: the directory %s is absent: "+
				"mount it by a hostPath of type DirectoryOrCreate, or start the pod-checkpointer daemon, which makes it: %w",
				path, dir, err)
		}
	}
	return fmt.Errorf("open lock %s: %w", path, err)
}

// isAt says whether fd is the file at path, which somebody may have replaced
// while this process waited.
func isAt(path string, fd int) (bool, error) {
	var locked, now unix.Stat_t
	if err := again(func() error { return unix.Fstat(fd, &locked) }); err != nil {
		return false, fmt.Errorf("stat: %w", err)
	}
	if locked.Mode&unix.S_IFMT != unix.S_IFREG {
		return false, errors.New("not a regular file")
	}
	err := again(func() error { return unix.Stat(path, &now) })
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("stat: %w", err)
	}
	return locked.Dev == now.Dev && locked.Ino == now.Ino, nil
}

// stamp notes the time of acquisition where HeldBy and people look for it. A
// lock without it is as good, so nothing here can fail.
//
// Programs find it in the descriptor's offset, which nothing else uses, in
// milliseconds of CLOCK_BOOTTIME: it lives and dies with the lock, goes through
// exec, is read in one piece with the lock, and no step of the wall clock moves
// it. (In nanoseconds it would pass the largest offset of ext4 after 5 hours.)
func (l *Lock) stamp() {
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err == nil {
		_, _ = unix.Seek(l.fd, boot.Nano()/int64(time.Millisecond), unix.SEEK_SET)
	}
	now := unix.Timespec{Nsec: unix.UTIME_NOW}
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(l.fd), []unix.Timespec{now, now}, 0)
}

// again repeats a system call that a signal has interrupted.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
