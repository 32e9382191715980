package durable

import (
	"io/fs"
	"syscall"
	"time"
)

// twinFile is a new file of a [Disk].
type twinFile struct {
	k    *Disk
	n    *inode
	path string
}

func (f *twinFile) do(op string, call func(now *content)) error {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if err := f.k.failed(op, f.path); err != nil {
		return err
	}
	call(&f.n.now)
	return nil
}

func (f *twinFile) Write(data []byte) (int, error) {
	written := len(data)
	err := f.do("write", func(*content) {})
	if err != nil {
		written /= 2
	}
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	f.n.now.data = append(f.n.now.data, data[:written]...)
	f.n.lost = false
	return written, err
}

func (f *twinFile) Chown(uid, gid int) error {
	return f.do("chown", func(now *content) { now.uid, now.gid = uid, gid })
}

// Chmod is that of a process without CAP_FOWNER.
func (f *twinFile) Chmod(perm fs.FileMode) error {
	f.k.mu.Lock()
	foreign := f.n.now.uid > 0
	f.k.mu.Unlock()
	if foreign {
		return &fs.PathError{Op: "chmod", Path: f.path, Err: syscall.EPERM}
	}
	return f.do("chmod", func(now *content) { now.mode = perm })
}

func (f *twinFile) Sync() error {
	err := f.do("fsync", func(now *content) {
		if !f.n.lost {
			f.n.stable = now.clone()
		}
	})
	if err != nil {
		f.n.lost = true
	}
	return err
}

func (f *twinFile) Close() error { return f.do("close", func(*content) {}) }

// info is a [fs.FileInfo]. The twin keeps no times.
type info struct {
	name string
	c    content
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return int64(len(i.c.data)) }
func (i info) Mode() fs.FileMode  { return i.c.mode }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.c.mode.IsDir() }
func (i info) Sys() any {
	return &syscall.Stat_t{Uid: uint32(i.c.uid), Gid: uint32(i.c.gid)}
}
