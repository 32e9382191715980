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

// End ends the process p, as Inspect has told it from the same proc, and
// returns nil when it is gone, so that the kernel has given its locks to the
// next waiters. It sends SIGTERM, and SIGKILL when the process has not ended
// after grace; without a grace it sends SIGKILL alone. A process that is gone
// already is no error, and another one that has its PID by now is not touched.
//
// When ctx is done End gives up and returns its error; the signals that it has
// sent stay sent. It needs CAP_KILL, and to be in the pid namespace of proc.
func End(ctx context.Context, proc string, p Process, grace time.Duration) (err error) {
	defer func() {
		if errors.Is(err, errGone) {
			err = nil
		} else if err != nil {
			err = fmt.Errorf("end process %d: %w", p.PID, err)
		}
	}()
	fd, err := hold(proc, p)
	if err != nil {
		return err
	}
	defer unix.Close(fd)

	if grace > 0 {
		if err := signalTo(fd, unix.SIGTERM); err != nil {
			return err
		}
		patience, cancel := context.WithTimeout(ctx, grace)
		defer cancel()
		if await(patience, fd) == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := signalTo(fd, unix.SIGKILL); err != nil {
		return err
	}
	return await(ctx, fd)
}

// hold returns a pidfd of p, which can't come to mean another process. That it
// means p is looked up after it was opened: before, PID may have changed hands.
func hold(proc string, p Process) (int, error) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		if now, readErr := readProcess(proc, p.PID); readErr == nil && now.StartTime == p.StartTime {
			return -1, fmt.Errorf("it is in %s and not in this pid namespace, which must be the host's", proc)
		}
		return -1, errGone
	}
	if err != nil {
		return -1, fmt.Errorf("pidfd_open: %w", err)
	}
	if err := verify(proc, p, fd); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func verify(proc string, p Process, fd int) error {
	pid, err := pidOf(proc, fd)
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

// pidOf returns the process id that the pidfd has in the namespace of proc:
// 0 where it has none there, -1 when the process is gone (pidfd_show_fdinfo,
// fs/pidfs.c v6.18).
func pidOf(proc string, fd int) (int, error) {
	text, err := os.ReadFile(filepath.Join(proc, "self", "fdinfo", strconv.Itoa(fd)))
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

func signalTo(fd int, sig unix.Signal) error {
	err := unix.PidfdSendSignal(fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return errGone
	}
	if err != nil {
		return fmt.Errorf("send %v: %w", sig, err)
	}
	return nil
}

// await returns nil as soon as the process has ended; it looks at ctx a few
// times a second, which poll can't wait for.
func await(ctx context.Context, fd int) error {
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(50*time.Millisecond/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("poll pidfd: %w", err)
		}
		if n > 0 {
			return nil
		}
	}
}
