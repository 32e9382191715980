package durable

import (
	"io/fs"
	"syscall"
)

// ReadOnly returns the same directory, for who must not change it: every change is
// refused with EROFS, as by a file system that is mounted so.
func (d *Dir) ReadOnly() *Dir { return &Dir{path: d.path, disk: readOnly{d.disk}} }

type readOnly struct{ disk }

func (readOnly) create(string) (file, error)     { return nil, syscall.EROFS }
func (readOnly) mkdir(string) error              { return syscall.EROFS }
func (readOnly) symlink(string, string) error    { return syscall.EROFS }
func (readOnly) rename(string, string) error     { return syscall.EROFS }
func (readOnly) remove(string) error             { return syscall.EROFS }
func (readOnly) chmod(string, fs.FileMode) error { return syscall.EROFS }
func (readOnly) setLabel(string, string) error   { return syscall.EROFS }

func (r readOnly) sub(name string) (disk, error) {
	below, err := r.disk.sub(name)
	if err != nil {
		return nil, err
	}
	return readOnly{below}, nil
}
