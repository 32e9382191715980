package lock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// An entry is one line of /proc/locks that tells of a flock.
type entry struct {
	pid    int // of the process that called flock; 0: not to be seen from this procfs
	waits  bool
	device uint64 // of the super block; stat gives another one on btrfs and overlayfs
	inode  uint64
}

// readTable returns every flock in the order of the kernel, which for one file
// is the holder, then the waiters as they will be served: one that comes later
// stands below the one that it waits for (__locks_insert_block, fs/locks.c v6.18).
//
// The kernel hands out a page at a time, and counts its way to the next: when a
// lock of an earlier page goes meanwhile, one that never moved is passed over.
// So whole says whether all came in one piece, and only then is what is not in
// the table not there.
func readTable(proc string) (table []entry, whole bool, err error) {
	text, pieces, err := readPieces(filepath.Join(proc, "locks"))
	if err != nil {
		return nil, false, fmt.Errorf("read lock table: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		e, ok, err := parseEntry(line)
		if err != nil {
			return nil, false, fmt.Errorf("read lock table: %w", err)
		}
		if ok {
			table = append(table, e)
		}
	}
	return table, pieces <= 1, nil
}

// pages are what readPieces reads into, some ten times a pass.
var pages = sync.Pool{New: func() any { return new(make([]byte, os.Getpagesize())) }}

// readPieces reads a file of a procfs, and says in how many pieces it came. Package os
// would make the poller watch it, each time.
func readPieces(path string) (text []byte, pieces int, err error) {
	fd := -1
	err = again(func() (err error) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, 0, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	piece := pages.Get().(*[]byte)
	defer pages.Put(piece)
	for ; ; pieces++ {
		n := 0
		err := again(func() (err error) {
			n, err = unix.Read(fd, *piece)
			return err
		})
		switch {
		case err != nil:
			return nil, 0, &os.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return text, pieces, nil
		}
		text = append(text, (*piece)[:n]...)
	}
}

// parseEntry reads a line as lock_get_status of fs/locks.c v6.18 writes it:
//
//	1: FLOCK  ADVISORY  WRITE 26686 fe:00:9982104 0 EOF
//	1:  -> FLOCK  ADVISORY  WRITE 26689 fe:00:9982104 0 EOF
//
// It is not ok for locks of another kind, which do not exclude a flock.
func parseEntry(line string) (e entry, ok bool, err error) {
	fields := strings.Fields(line)
	if len(fields) > 1 && fields[1] == "->" {
		e.waits = true
		fields = append(fields[:1], fields[2:]...)
	}
	if len(fields) < 2 || fields[1] != "FLOCK" {
		return e, false, nil
	}
	unreadable := fmt.Errorf("unreadable line %q", strings.TrimSpace(line))
	if len(fields) < 6 {
		return e, false, unreadable
	}
	if e.pid, err = strconv.Atoi(fields[4]); err != nil {
		return e, false, unreadable
	}
	place := strings.Split(fields[5], ":")
	if len(place) != 3 {
		return e, false, unreadable
	}
	major, err1 := strconv.ParseUint(place[0], 16, 32)
	minor, err2 := strconv.ParseUint(place[1], 16, 32)
	inode, err3 := strconv.ParseUint(place[2], 10, 64)
	if errors.Join(err1, err2, err3) != nil {
		return e, false, unreadable
	}
	e.device, e.inode = device(major, minor), inode
	return e, true, nil
}
