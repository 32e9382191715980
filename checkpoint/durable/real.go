package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// real is a directory of the machine. An [os.Root] is a descriptor below which
// every name is opened, so that no ".." and no link leads out of it.
type real struct{ root *os.Root }

func (r real) create(name string) (file, error) {
	f, err := r.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (r real) mkdir(name string) error           { return r.root.Mkdir(name, 0o700) }
func (r real) symlink(target, name string) error { return r.root.Symlink(target, name) }
func (r real) rename(from, to string) error      { return r.root.Rename(from, to) }
func (r real) remove(name string) error          { return r.root.Remove(name) }

func (r real) chmod(name string, perm fs.FileMode) error { return r.root.Chmod(name, perm) }

// setLabel goes by the descriptor of the directory above, so that it leads out as
// little as the other calls do: lsetxattr(2) itself knows nothing of a root. It was
// tried by root on ext4 and tmpfs of a kernel without SELinux, which keeps the
// attribute and asks nobody; what a policy says to it was not.
func (r real) setLabel(name, label string) error {
	above, err := r.root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer above.Close()
	return unix.Lsetxattr(fmt.Sprintf("/proc/self/fd/%d/%s", above.Fd(), path.Base(name)), "security.selinux", []byte(label), 0)
}

func (r real) sync(name string) error {
	f, err := r.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (r real) readFile(name string) ([]byte, error)       { return r.root.ReadFile(name) }
func (r real) readDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(r.root.FS(), name) }
func (r real) stat(name string) (fs.FileInfo, error)      { return r.root.Stat(name) }
func (r real) lstat(name string) (fs.FileInfo, error)     { return r.root.Lstat(name) }
func (r real) readlink(name string) (string, error)       { return r.root.Readlink(name) }

func (r real) sub(name string) (disk, error) {
	root, err := r.root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return real{root}, nil
}
