package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Await returns nil within a millisecond of the end of process p, as Inspect has
// told it from the same proc: by then the kernel has taken its locks from it. One
// that is gone already is waited for no more, even if another one has its PID.
//
// When ctx is done it returns its error. It blocks a goroutine and no thread, so that
// each holder and waiter may have one. Like End it must be in the pid namespace of proc.
func Await(ctx context.Context, proc string, p Process) error {
	held, err := hold(proc, p)
	if err == nil {
		defer held.Close()
		err = held.ended(ctx)
	}
	if err == nil || errors.Is(err, errGone) {
		return nil
	}
	return fmt.Errorf("await end of process %d: %w", p.PID, err)
}

// A pidfd can't come to mean another process (pidfd_open(2)).
type pidfd struct {
	*os.File
	fd int
}

// hold returns a pidfd of p. That it means p is looked up after it was opened:
// before, PID may have changed hands.
func hold(proc string, p Process) (pidfd, error) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		if now, readErr := readProcess(proc, p.PID); readErr == nil && now.StartTime == p.StartTime {
			return pidfd{}, fmt.Errorf("it is in %s and not in this pid namespace, which must be the host's", proc)
		}
		return pidfd{}, errGone
	}
	if err != nil {
		return pidfd{}, fmt.Errorf("pidfd_open: %w", err)
	}
	// Only a descriptor that does not block is waited for without a thread.
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return pidfd{}, fmt.Errorf("pidfd: %w", err)
	}
	held := pidfd{os.NewFile(uintptr(fd), "pidfd"), fd}
	if err := held.verify(proc, p); err != nil {
		_ = held.Close()
		return pidfd{}, err
	}
	return held, nil
}

func (f pidfd) verify(proc string, p Process) error {
	pid, err := f.pid(proc)
	switch {
	case err != nil:
		return fmt.Errorf("read pidfd: %w", err)
	case pid < 0:
		return errGone
	case pid != p.PID:
		return fmt.Errorf("it is %d in %s: this pid namespace must be the host's", pid, proc)
	}
	now, err := readProcess(proc, p.PID)
	switch {
	case err != nil:
		return err
	case now.StartTime != p.StartTime:
		return errGone
	case now.ContainerID != p.ContainerID || now.PodUID != p.PodUID:
		return fmt.Errorf("it has moved from container %q of pod %q to %q of %q",
			p.ContainerID, p.PodUID, now.ContainerID, now.PodUID)
	}
	return nil
}

// pid returns the process id that the pidfd has in the namespace of proc: 0 where
// it has none there, -1 when the process is gone (pidfd_show_fdinfo, fs/pidfs.c v6.18).
func (f pidfd) pid(proc string) (int, error) {
	text, err := os.ReadFile(filepath.Join(proc, "self", "fdinfo", strconv.Itoa(f.fd)))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "Pid:"); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, errors.New("no Pid in its fdinfo")
}

func (f pidfd) signal(sig unix.Signal) error {
	err := unix.PidfdSendSignal(f.fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return errGone
	}
	if err != nil {
		return fmt.Errorf("send %v: %w", sig, err)
	}
	return nil
}

// ended returns nil as soon as the process has ended, or the error of ctx. The
// runtime's poller waits: a pidfd can be read from then on, says poll(2), if not by read(2).
func (f pidfd) ended(ctx context.Context) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("poll pidfd: %w", err)
	}
	if err := f.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("poll pidfd: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var polled error
	err = raw.Read(func(fd uintptr) bool {
		var n int
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, polled = unix.Poll(fds, 0)
		return n > 0 || polled != nil && !errors.Is(polled, unix.EINTR)
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("poll pidfd: %w", err)
	case polled != nil:
		return fmt.Errorf("poll pidfd: %w", polled)
	}
	return nil
}
