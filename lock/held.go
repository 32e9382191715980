package lock

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrSplit says that a process holds a file that is no longer the one at the
// path, so that another process may hold that one.
var ErrSplit = errors.New("holds a file that is no longer at this path")

// Held is what a process has of a lock.
type Held struct {
	Yes bool
	For time.Duration // since Acquire, by CLOCK_BOOTTIME; negative: not known, since it was not taken by Acquire
}

// HeldBy says whether process pid of the procfs at proc holds the lock file at
// path, by its own descriptors. Unlike Inspect it sees nothing of others, and so
// needs no more than a container's own procfs. It is no holder while it waits
// and before it waits. The error is ErrSplit, or means that it is not known.
func HeldBy(proc string, pid int, path string) (Held, error) {
	file, err := identify(path)
	if err != nil {
		return Held{}, err
	}
	var held Held
	split := false
	var unread error
	err = descriptors(proc, pid, func(d descriptor) bool {
		same := file.exists && d.inode == file.inode && d.device == file.device
		if !same && d.opened() != path {
			return true
		}
		locked, since, err := readInfo(d.info)
		switch {
		case err != nil:
			unread = err
		case !locked: // it waits, or has opened the file for another reason
		case same:
			held = Held{Yes: true, For: elapsed(since)}
		default:
			split = true
		}
		return !held.Yes
	})
	switch {
	case held.Yes:
		return held, nil
	case err != nil:
		return held, fmt.Errorf("descriptors of process %d: %w", pid, err)
	case unread != nil:
		return held, fmt.Errorf("descriptors of process %d: %w", pid, unread)
	case split:
		return held, fmt.Errorf("process %d, lock %s: %w", pid, path, ErrSplit)
	}
	return held, nil
}

// readInfo reads a file of /proc/PID/fdinfo (proc_pid_fdinfo(5)): whether an
// exclusive flock is held by this very descriptor, and its offset.
//
//	pos:	194203
//	lock:	1: FLOCK  ADVISORY  WRITE 1 00:1b:7 0 EOF
func readInfo(path string) (locked bool, offset int64, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return false, 0, gone(err)
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		switch {
		case key == "pos" && len(fields) == 1:
			if offset, err = strconv.ParseInt(fields[0], 10, 64); err != nil {
				return false, 0, fmt.Errorf("read %s: %w", path, err)
			}
		case key == "lock" && len(fields) > 3 && fields[1] == "FLOCK" && fields[3] == "WRITE":
			locked = true
		}
	}
	return locked, offset, nil
}

// elapsed is the time since stamp noted an offset.
func elapsed(offset int64) time.Duration {
	var now unix.Timespec
	if offset == 0 || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return -1
	}
	return time.Duration(now.Nano()) - time.Duration(offset)*time.Millisecond
}
