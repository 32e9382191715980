// Package durable changes files so that they survive a power cut.
//
// When a call returns nil, the contents, their mode and owner, and the
// directory entry are all on stable storage. At every instant before that, a
// reader and a restarted machine find the old state or the new one: never a
// part, never nothing. When a call returns an error, either of the two may be
// found, and nothing more is known; the remedy is to make the call again, with
// the contents from memory. In particular a write is never skipped because the
// same bytes can be read: after a failed fsync(2), Linux goes on to show bytes
// that are on no disk, and reports the failure only once.
//
// Temporary names begin with [TempPrefix], hence with a dot, because the
// kubelet takes any other name in its manifest directory for a pod. They are
// removed when a call fails; what a crash leaves is for [Dir.Clean].
//
// [Disk] is a disk in memory that forgets what was not synced, for tests.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// TempPrefix begins the name of every temporary file and directory. It is not a
// dot before the name of a file of ours: editors name their own files so.
const TempPrefix = ".tmp-pod-checkpointer-"

// Dir is one directory. Names are relative to it and slash-separated; they may
// be nested, but hold no "." or ".." element (as [fs.ValidPath]), and neither
// they nor symbolic links on their way lead out of it. Every error names the
// operation and the whole path, and unwraps to its cause.
//
// A Dir holds a descriptor until it is garbage. It may be used by several
// goroutines, as long as no two change the same name at the same time.
type Dir struct {
	path string
	disk disk
}

// disk is the little that a Dir asks of a disk; each call is one system call,
// so that a test can fail or cut the power at any of them.
type disk interface {
	create(name string) (file, error) // mode 0600; fs.ErrExist if the name is taken
	mkdir(name string) error          // mode 0700; fs.ErrExist if the name is taken
	symlink(target, name string) error
	rename(from, to string) error
	remove(name string) error // a file, a link, or an empty directory
	chmod(name string, perm fs.FileMode) error
	setLabel(name, label string) error // SELinux's; of a link, its own
	sync(name string) error            // fsync of a directory: its entries and its mode

	readFile(name string) ([]byte, error)
	readDir(name string) ([]fs.DirEntry, error) // sorted by name
	stat(name string) (fs.FileInfo, error)      // follows links
	lstat(name string) (fs.FileInfo, error)
	readlink(name string) (string, error)
	sub(name string) (disk, error)
}

// file is a new file that is written once; [os.File] is one.
type file interface {
	Write(data []byte) (int, error)
	Chown(uid, gid int) error
	Chmod(perm fs.FileMode) error
	Sync() error
	Close() error
}

// Open opens the directory at path, which must exist.
func Open(path string) (*Dir, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: cause(err)}
	}
	return &Dir{path: path, disk: real{root}}, nil
}

// Create opens the directory at path, having made it and the directories above
// it, durably, where they were absent. Those above get mode 0755; the directory
// itself has mode perm in the end, even if it was there.
func Create(path string, perm fs.FileMode) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: err}
	}
	if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
		if _, err := Create(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
	}
	above, err := Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	if err := above.Mkdir(filepath.Base(path), perm); err != nil {
		return nil, err
	}
	return Open(path)
}

// Path returns the path by which the directory was opened.
func (d *Dir) Path() string { return d.path }

// Sub opens a directory below. Where it, or one on the way to it, is absent, it
// is made durably with mode 0700.
func (d *Dir) Sub(name string) (*Dir, error) {
	if err := d.ensure(name); err != nil {
		return nil, err
	}
	var sub disk
	err := d.do("open", name, func() (err error) {
		sub, err = d.disk.sub(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Dir{path: filepath.Join(d.path, name), disk: sub}, nil
}

// ReadFile returns the contents of a file.
func (d *Dir) ReadFile(name string) (data []byte, err error) {
	err = d.do("read", name, func() (err error) {
		data, err = d.disk.readFile(name)
		return err
	})
	return data, err
}

// ReadDir returns the entries of a directory, temporary ones included, sorted
// by name. The directory itself is ".".
func (d *Dir) ReadDir(name string) (entries []fs.DirEntry, err error) {
	err = d.do("readdir", name, func() (err error) {
		entries, err = d.disk.readDir(name)
		return err
	})
	return entries, err
}

// Readlink returns the target of a link, which is not looked at.
func (d *Dir) Readlink(name string) (target string, err error) {
	err = d.do("readlink", name, func() (err error) {
		target, err = d.disk.readlink(name)
		return err
	})
	return target, err
}

// Stat tells of what name leads to. Its Sys is a *[syscall.Stat_t].
func (d *Dir) Stat(name string) (info fs.FileInfo, err error) {
	err = d.do("stat", name, func() (err error) {
		info, err = d.disk.stat(name)
		return err
	})
	return info, err
}

// do makes one call to the disk, and is the one place where names are checked
// and errors get their words.
func (d *Dir) do(op, name string, call func() error) error {
	if err := d.check(op, name); err != nil {
		return err
	}
	if err := call(); err != nil {
		return &fs.PathError{Op: op, Path: filepath.Join(d.path, name), Err: cause(err)}
	}
	return nil
}

// check refuses names that are not below the directory. Whoever makes other
// names from a name checks it first, since joining takes ".." off.
func (d *Dir) check(op string, names ...string) error {
	for _, name := range names {
		if !fs.ValidPath(name) {
			return &fs.PathError{Op: op, Path: d.path, Err: fmt.Errorf("name %q is not one below the directory", name)}
		}
	}
	return nil
}

// cause takes off the words of package os, which name only half of the path.
func cause(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	var call *os.SyscallError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	case errors.As(err, &call):
		return call.Err
	}
	return err
}
