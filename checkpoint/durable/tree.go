package durable

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"syscall"
)

// Tree is a directory that is written as a whole. Names are slash-separated and
// may be nested; the directories on their way need not be listed.
type Tree struct {
	Perm  fs.FileMode       // of every directory
	Dirs  []string          // directories that may be empty
	Files map[string]File   // by name
	Links map[string]string // targets by name
}

// File is one file of a [Tree].
type File struct {
	Data     []byte
	Perm     fs.FileMode
	UID, GID int // or [Unowned]
}

// WriteTree makes the directory name with all that is in the tree. At every
// instant all of it is there, or none. If something is at name, that is durable,
// and the error is [fs.ErrExist].
func (d *Dir) WriteTree(name string, t Tree) error {
	all := slices.Concat([]string{name}, t.Dirs, keys(t.Files), keys(t.Links))
	if err := d.check("write", all...); err != nil {
		return err
	}
	switch _, err := d.lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
		return d.replace(name, func(temp string) error { return d.plant(temp, t) })
	case err != nil:
		return err
	}
	if err := d.syncEntry(name); err != nil {
		return err
	}
	return d.do("write", name, func() error { return syscall.EEXIST })
}

// plant makes a tree under a name that nobody else knows.
func (d *Dir) plant(temp string, t Tree) error {
	dirs := t.directories()
	for _, dir := range dirs {
		dir = path.Join(temp, dir)
		if err := d.do("mkdir", dir, func() error { return d.disk.mkdir(dir) }); err != nil {
			return err
		}
		// Also for 0700, of which a umask may have taken something.
		if err := d.chmod(dir, t.Perm); err != nil {
			return err
		}
	}
	for _, name := range keys(t.Files) {
		f := t.Files[name]
		if err := d.write(path.Join(temp, name), f.Data, f.Perm, f.UID, f.GID); err != nil {
			return err
		}
	}
	for _, name := range keys(t.Links) {
		if err := d.link(t.Links[name], path.Join(temp, name)); err != nil {
			return err
		}
	}
	// One fsync for all entries of a directory is enough, since nothing leads to
	// it before the tree is complete.
	for _, dir := range dirs {
		if err := d.sync(path.Join(temp, dir)); err != nil {
			return err
		}
	}
	return nil
}

// directories returns every directory of the tree, the ones above first.
func (t Tree) directories() []string {
	set := map[string]bool{}
	add := func(dir string) {
		for ; dir != "."; dir = path.Dir(dir) {
			set[dir] = true
		}
	}
	for _, dir := range t.Dirs {
		add(dir)
	}
	for _, name := range slices.Concat(keys(t.Files), keys(t.Links)) {
		add(path.Dir(name))
	}
	return append([]string{"."}, keys(set)...)
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
