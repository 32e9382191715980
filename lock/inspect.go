package lock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// State is what the kernel says of one lock file.
type State struct {
	Path    string
	Exists  bool
	Holder  *Process  // nil: free
	Waiters []Process // in the order in which the kernel will serve them
	Split   bool      // somebody holds or waits for another inode that once had this path
}

// Inspect says who holds the lock file at path and who waits for it. proc is
// the root of a procfs, such as "/proc", which must be one whose process ids
// comprise everybody that may lock the file, hence the host's: the kernel shows
// no lock of a holder outside of it, and pid 0 for such a waiter.
//
// A holder or waiter that is in the table and can't be found is an error, never
// a free lock. Kernels before 5.13 show only the first waiter.
//
// Inspect reads the table and what it names, and nothing else, so that it may be
// called ten times a second. Other users' processes need CAP_SYS_PTRACE where
// the file is on btrfs or overlayfs, and to see a split.
func Inspect(proc, path string) (State, error) { return inspectFor(forgetful{}, proc, path) }

// A looker answers, for a file at which it looks, whether a lock on another file is on
// one that once had its path.
type looker interface {
	look(file identity)
	split(file identity, proc string, e entry) bool
}

// forgetful finds it out each time.
type forgetful struct{}

func (forgetful) look(identity) {}

func (forgetful) split(file identity, proc string, e entry) bool { return file.split(proc, e) }

func inspectFor(l looker, proc, path string) (State, error) {
	// Between the table and the process a holder may end, and a table of more
	// than one page may miss one; both are rare, so a few attempts are plenty.
	const attempts = 4
	var state State
	var err error
	for range attempts {
		var whole bool
		state, whole, err = inspect(l, proc, path)
		if err == nil && (whole || state.Holder != nil) {
			return state, nil
		}
		if err != nil && !errors.Is(err, errGone) {
			break
		}
	}
	if err != nil {
		return State{}, fmt.Errorf("inspect lock %s: %w", path, err)
	}
	return state, nil // never in the table, in as many readings
}

func inspect(l looker, proc, path string) (state State, whole bool, err error) {
	state.Path = path
	file, err := identify(path)
	if err != nil {
		return state, false, err
	}
	state.Exists = file.exists
	table, whole, err := readTable(proc)
	if err != nil {
		return state, false, err
	}
	l.look(file)
	for _, e := range table {
		ours, err := file.locked(proc, e)
		if err != nil {
			return state, false, err
		}
		if !ours {
			state.Split = state.Split || l.split(file, proc, e)
			continue
		}
		p, err := find(proc, e)
		if e.waits && e.pid > 0 && errors.Is(err, errGone) {
			continue // it died while it waited
		}
		switch {
		case err != nil:
			return state, false, err
		case e.waits:
			state.Waiters = append(state.Waiters, p)
		case state.Holder == nil:
			state.Holder = &p
		}
	}
	return state, whole, nil
}

func find(proc string, e entry) (Process, error) {
	if e.pid <= 0 {
		return Process{}, fmt.Errorf("a process outside of the process ids of %s holds it or waits: %w", proc, errGone)
	}
	p, err := readProcess(proc, e.pid)
	if errors.Is(err, errGone) {
		return p, fmt.Errorf("taken by process %d, which has ended and left it to a child: %w", e.pid, err)
	}
	return p, err
}

// identity is what tells the file at a path from another one.
type identity struct {
	path   string
	exists bool
	device uint64 // of the file or, where it is absent, of its directory; 0: absent too
	inode  uint64 // 0: absent
	shifty bool   // its file system tells stat another device than the lock table
}

func identify(path string) (identity, error) {
	id := identity{path: path}
	for _, name := range []string{path, filepath.Dir(path)} {
		var stat unix.Stat_t
		err := again(func() error { return unix.Stat(name, &stat) })
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return id, fmt.Errorf("stat %s: %w", name, err)
		}
		id.device = stat.Dev
		if name == path {
			id.exists, id.inode = true, stat.Ino
		}
		var system unix.Statfs_t
		if err := again(func() error { return unix.Statfs(name, &system) }); err != nil {
			return id, fmt.Errorf("statfs %s: %w", name, err)
		}
		id.shifty = system.Type == unix.BTRFS_SUPER_MAGIC || system.Type == unix.OVERLAYFS_SUPER_MAGIC
		break
	}
	return id, nil
}

// locked says whether e is a lock on this file. Where the device can't tell,
// the process's own descriptor does.
func (id identity) locked(proc string, e entry) (bool, error) {
	switch {
	case !id.exists || e.inode != id.inode:
		return false, nil
	case e.device == id.device:
		return true, nil
	case !id.shifty:
		return false, nil
	}
	found := false
	err := descriptors(proc, e.pid, func(d descriptor) bool {
		found = d.inode == id.inode && d.device == id.device
		return !found
	})
	switch {
	case e.waits && errors.Is(err, errGone):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("descriptors of process %d: %w", e.pid, err)
	}
	return found, nil
}

// split says whether e, a lock on another file, is on one that was opened by
// this path, or by its name in the same directory, which a container may have
// mounted elsewhere. Only locks of the same file system come into question, and
// their processes' descriptors are read up to the one that has the lock. A
// process whose descriptors may not be read is taken to have nothing to do with
// the path, since it would else block the view for ever.
func (id identity) split(proc string, e entry) bool {
	if e.pid <= 0 || id.device != 0 && e.device != id.device && !id.shifty {
		return false
	}
	split := false
	_ = descriptors(proc, e.pid, func(d descriptor) bool {
		if d.inode != e.inode || d.device != e.device && !id.shifty {
			return true
		}
		dir, base := filepath.Split(d.opened())
		split = dir+base == id.path ||
			base == filepath.Base(id.path) && id.sameDir(proc, e.pid, dir)
		return false
	})
	return split
}

// sameDir says whether dir, as the process sees it, is this file's directory.
func (id identity) sameDir(proc string, pid int, dir string) bool {
	here, err := os.Stat(filepath.Dir(id.path))
	if err != nil {
		return false
	}
	there, err := os.Stat(filepath.Join(proc, strconv.Itoa(pid), "root", dir))
	return err == nil && os.SameFile(here, there)
}

func device(major, minor uint64) uint64 { return unix.Mkdev(uint32(major), uint32(minor)) }
