package durable

import (
	"bytes"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Disk is a disk in memory. It behaves as a real one does, and [Disk.Crash]
// shows which of the changes that were made on it were not synced. It may be
// used by several goroutines.
//
// It is harsher than any one file system: each entry, each file's bytes and
// each mode reaches the platter for itself, only a rename is whole; and a file
// whose fsync failed shows its bytes, and succeeds in the next fsync, with
// nothing on the platter.
type Disk struct {
	mu   sync.Mutex
	root *inode
	fail func(op, name string) error
	// pending are the changes of entries that no fsync covered, oldest first.
	pending []change
}

// change is what one call did to the entries of directories; a nil inode is a removal.
type change []entry

type entry struct {
	dir  *inode
	name string
	node *inode
}

// inode is a file, directory or link in two versions.
type inode struct {
	now    content // what everybody sees
	stable content // what a power cut leaves
	lost   bool    // an fsync of these bytes failed, and the kernel took them for written
}

type content struct {
	mode     fs.FileMode
	uid, gid int
	label    string
	data     []byte // of a link: the target
	entries  map[string]*inode
}

func (c content) clone() content {
	c.data, c.entries = bytes.Clone(c.data), maps.Clone(c.entries)
	return c
}

func newInode(mode fs.FileMode, data string) *inode {
	c := content{mode: mode, data: []byte(data)}
	if mode.IsDir() {
		c.entries = map[string]*inode{}
	}
	return &inode{now: c, stable: c.clone()}
}

// NewDisk returns an empty disk.
func NewDisk() *Disk { return &Disk{root: newInode(fs.ModeDir|0o755, "")} }

// Dir opens the directory at an absolute path, having made it, durably, if it was absent.
func (k *Disk) Dir(name string) (*Dir, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.root
	for element := range strings.SplitSeq(strings.Trim(path.Clean(name), "/"), "/") {
		next := n.now.entries[element]
		if next == nil {
			next = newInode(fs.ModeDir|0o700, "")
			n.now.entries[element], n.stable.entries[element] = next, next
		}
		if n = next; !n.now.mode.IsDir() {
			return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
		}
	}
	return &Dir{path: name, disk: twin{k, n, name}}, nil
}

// Fail lets fn decide before each operation whether it fails, and how: EIO,
// ENOSPC, EROFS. A failed write has written half; any other operation that
// failed did nothing. The operations are open, stat, read, readdir, readlink,
// create, write, label, chown, chmod, fsync, close, rename, mkdir, symlink and
// remove; name is the absolute path, of a rename the new one. Nil lets all succeed again.
// fn must not use the disk.
func (k *Disk) Fail(fn func(op, name string) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail = fn
}

// Labels returns the label of everything that has one, by absolute path.
func (k *Disk) Labels() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[string]string{}
	k.root.labels("/", all)
	return all
}

func (n *inode) labels(at string, all map[string]string) {
	if n.now.label != "" {
		all[at] = n.now.label
	}
	for name, below := range n.now.entries {
		below.labels(path.Join(at, name), all)
	}
}

// Crash cuts the power: what was not synced is gone, and whatever was opened
// before must be opened again. A real disk may have written some of it by
// itself: where keep is given, it is asked for each change, and the change stays
// if it returns true. Bytes of a file that it refuses are asked for again, and
// half of them may stay.
func (k *Disk) Crash(keep ...func() bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kept := func() bool { return len(keep) > 0 && keep[0]() }
	for _, c := range k.pending {
		if !kept() {
			continue
		}
		for _, e := range c {
			e.dir.stable.put(e.name, e.node)
		}
	}
	k.pending, k.fail = nil, nil
	k.root.crash(kept, map[*inode]bool{})
}

func (n *inode) crash(kept func() bool, seen map[*inode]bool) {
	if seen[n] {
		return
	}
	seen[n] = true
	if n.now.mode.IsRegular() && !bytes.Equal(n.now.data, n.stable.data) {
		switch {
		case kept():
			n.stable.data = n.now.data
		case kept():
			n.stable.data = n.now.data[:len(n.now.data)/2]
		}
	}
	if n.now.mode != n.stable.mode && kept() {
		n.stable.mode = n.now.mode
	}
	if (n.now.uid != n.stable.uid || n.now.gid != n.stable.gid) && kept() {
		n.stable.uid, n.stable.gid = n.now.uid, n.now.gid
	}
	if n.now.label != n.stable.label && kept() {
		n.stable.label = n.now.label
	}
	n.now, n.lost = n.stable.clone(), false
	// Sorted, so that the same seed gives the same disk.
	for _, name := range slices.Sorted(maps.Keys(n.now.entries)) {
		n.now.entries[name].crash(kept, seen)
	}
}

// put sets one entry; nil removes it.
func (c *content) put(name string, node *inode) {
	if node == nil {
		delete(c.entries, name)
		return
	}
	c.entries[name] = node
}

// change changes entries for everybody who looks, until the next fsync or crash.
func (k *Disk) change(entries ...entry) {
	for _, e := range entries {
		e.dir.now.put(e.name, e.node)
	}
	k.pending = append(k.pending, entries)
}

// syncDir puts the entries of one directory on the platter, and with a rename
// also its other end.
func (k *Disk) syncDir(dir *inode) {
	dir.stable = dir.now.clone()
	var rest []change
	for _, c := range k.pending {
		if !slices.ContainsFunc(c, func(e entry) bool { return e.dir == dir }) {
			rest = append(rest, c)
			continue
		}
		for _, e := range c {
			if e.dir == dir {
				continue
			}
			e.dir.stable.put(e.name, e.node)
			// What was done before to the same name must not come after.
			for i, old := range rest {
				rest[i] = slices.DeleteFunc(old, func(o entry) bool { return o.dir == e.dir && o.name == e.name })
			}
		}
	}
	k.pending = rest
}
