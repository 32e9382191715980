package durable

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// twin is one directory of a [Disk].
type twin struct {
	k    *Disk
	dir  *inode
	path string
}

// do makes one operation at the entry that name leads to, unless it is to fail.
// The last element of name may be absent or a link, as in a real call.
func (t twin) do(op, name string, call func(at entry) error) error {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	if err := t.k.failed(op, filepath.Join(t.path, name)); err != nil {
		return err
	}
	at, err := t.walk(name, false)
	if err != nil {
		return err
	}
	return call(at)
}

// follow is do for an operation on what is there, at the end of all links.
func (t twin) follow(op, name string, call func(n *inode) error) error {
	return t.do(op, name, func(entry) error {
		at, err := t.walk(name, true)
		if err != nil {
			return err
		}
		if at.node == nil {
			return syscall.ENOENT
		}
		return call(at.node)
	})
}

func (k *Disk) failed(op, name string) error {
	if k.fail == nil {
		return nil
	}
	return k.fail(op, name)
}

// errEscapes has the words of os.Root.
var errEscapes = errors.New("path escapes from parent")

// walk resolves a name as os.Root does: links are followed, those that lead out
// of the directory are an error. The last element is followed if last is true.
func (t twin) walk(name string, last bool) (entry, error) {
	at := entry{node: t.dir}
	above := []*inode{t.dir} // the way to at.node, itself included
	rest := strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		element := rest[0]
		rest = rest[1:]
		dir := above[len(above)-1]
		if !dir.now.mode.IsDir() {
			return entry{}, syscall.ENOTDIR
		}
		switch element {
		case ".":
			at = entry{node: dir}
			continue
		case "..":
			if len(above) == 1 {
				return entry{}, errEscapes
			}
			above = above[:len(above)-1]
			at = entry{node: above[len(above)-1]}
			continue
		}
		at = entry{dir, element, dir.now.entries[element]}
		switch {
		case at.node == nil && len(rest) > 0:
			return entry{}, syscall.ENOENT
		case at.node == nil:
		case at.node.now.mode.Type() == fs.ModeSymlink && (last || len(rest) > 0):
			target := string(at.node.now.data)
			if path.IsAbs(target) {
				return entry{}, errEscapes
			}
			if links++; links > 40 {
				return entry{}, syscall.ELOOP
			}
			rest = append(strings.Split(target, "/"), rest...)
		default:
			above = append(above, at.node)
		}
	}
	return at, nil
}

func (t twin) add(op, name string, n *inode) error {
	return t.do(op, name, func(at entry) error {
		if at.node != nil {
			return syscall.EEXIST
		}
		at.node = n
		t.k.change(at)
		return nil
	})
}

func (t twin) create(name string) (file, error) {
	n := newInode(0o600, "")
	if err := t.add("create", name, n); err != nil {
		return nil, err
	}
	return &twinFile{t.k, n, filepath.Join(t.path, name)}, nil
}

func (t twin) mkdir(name string) error {
	return t.add("mkdir", name, newInode(fs.ModeDir|0o700, ""))
}

func (t twin) symlink(target, name string) error {
	return t.add("symlink", name, newInode(fs.ModeSymlink|0o777, target))
}

func (t twin) remove(name string) error {
	return t.do("remove", name, func(at entry) error {
		if at.node == nil {
			return syscall.ENOENT
		}
		if len(at.node.now.entries) > 0 {
			return syscall.ENOTEMPTY
		}
		at.node = nil
		t.k.change(at)
		return nil
	})
}

func (t twin) rename(from, to string) error {
	return t.do("rename", to, func(at entry) error {
		old, err := t.walk(from, false)
		switch {
		case err != nil:
			return err
		case old.node == nil:
			return syscall.ENOENT
		case old.node == at.node:
			return nil
		case at.node == nil:
		case at.node.now.mode.IsDir() && !old.node.now.mode.IsDir():
			return syscall.EEXIST // as os.Root, of EISDIR
		case !at.node.now.mode.IsDir() && old.node.now.mode.IsDir():
			return syscall.ENOTDIR
		case len(at.node.now.entries) > 0:
			return syscall.ENOTEMPTY
		}
		at.node, old.node = old.node, nil
		t.k.change(old, at)
		return nil
	})
}

func (t twin) chmod(name string, perm fs.FileMode) error {
	return t.follow("chmod", name, func(n *inode) error {
		n.now.mode = n.now.mode.Type() | perm
		return nil
	})
}

func (t twin) setLabel(name, label string) error {
	return t.do("label", name, func(at entry) error {
		if at.node == nil {
			return syscall.ENOENT
		}
		at.node.now.label = label
		if at.node.now.mode.Type() == fs.ModeSymlink {
			at.node.stable.label = label // as its target: see Dir.Labelled
		}
		return nil
	})
}

func (t twin) sync(name string) error {
	return t.follow("fsync", name, func(n *inode) error {
		t.k.syncDir(n)
		return nil
	})
}

func (t twin) readFile(name string) (data []byte, err error) {
	err = t.follow("read", name, func(n *inode) error {
		if n.now.mode.IsDir() {
			return syscall.EISDIR
		}
		data = slices.Clone(n.now.data)
		return nil
	})
	return data, err
}

func (t twin) readDir(name string) (entries []fs.DirEntry, err error) {
	err = t.follow("readdir", name, func(n *inode) error {
		if !n.now.mode.IsDir() {
			return syscall.ENOTDIR
		}
		for _, name := range slices.Sorted(maps.Keys(n.now.entries)) {
			entries = append(entries, fs.FileInfoToDirEntry(info{name, n.now.entries[name].now.clone()}))
		}
		return nil
	})
	return entries, err
}

func (t twin) stat(name string) (i fs.FileInfo, err error) {
	err = t.follow("stat", name, func(n *inode) error {
		i = info{path.Base(name), n.now.clone()}
		return nil
	})
	return i, err
}

func (t twin) lstat(name string) (i fs.FileInfo, err error) {
	err = t.do("stat", name, func(at entry) error {
		if at.node == nil {
			return syscall.ENOENT
		}
		i = info{path.Base(name), at.node.now.clone()}
		return nil
	})
	return i, err
}

func (t twin) readlink(name string) (target string, err error) {
	err = t.do("readlink", name, func(at entry) error {
		switch {
		case at.node == nil:
			return syscall.ENOENT
		case at.node.now.mode.Type() != fs.ModeSymlink:
			return syscall.EINVAL
		}
		target = string(at.node.now.data)
		return nil
	})
	return target, err
}

func (t twin) sub(name string) (d disk, err error) {
	err = t.follow("open", name, func(n *inode) error {
		if !n.now.mode.IsDir() {
			return syscall.ENOTDIR
		}
		d = twin{t.k, n, filepath.Join(t.path, name)}
		return nil
	})
	return d, err
}
