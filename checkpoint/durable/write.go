package durable

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
)

// Unowned as user or group leaves a file to that of the process, as chown(2) does.
const Unowned = -1

// WriteFile puts a file with these contents and this mode at name, in the place
// of any file or link that is there. The directory of name must exist.
func (d *Dir) WriteFile(name string, data []byte, perm fs.FileMode) error {
	return d.WriteOwned(name, data, perm, Unowned, Unowned)
}

// WriteOwned is [Dir.WriteFile] for a file that belongs to another user and
// group. Until its owner and mode are set, nobody but root can open it.
func (d *Dir) WriteOwned(name string, data []byte, perm fs.FileMode, uid, gid int) error {
	return d.replace(name, func(temp string) error {
		return d.write(temp, data, perm, uid, gid)
	})
}

// Symlink puts a link to target at name, in the place of any file or link that
// is there. The target is not looked at.
func (d *Dir) Symlink(target, name string) error {
	return d.replace(name, func(temp string) error { return d.link(target, temp) })
}

// replace lets fill make something under a temporary name, complete and synced,
// and then renames it over name.
func (d *Dir) replace(name string, fill func(temp string) error) (err error) {
	if err := d.check("write", name); err != nil {
		return err
	}
	temp := tempName(name)
	if err := d.discard(temp); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = d.discard(temp) // or else the next Clean will
		}
	}()
	if err := fill(temp); err != nil {
		return err
	}
	return d.Rename(temp, name)
}

// write makes a new file and syncs it, but not its entry.
func (d *Dir) write(name string, data []byte, perm fs.FileMode, uid, gid int) error {
	var f file
	err := d.do("create", name, func() (err error) {
		f, err = d.disk.create(name)
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(d.fill(f, name, data, perm, uid, gid), d.do("close", name, f.Close))
}

// fill sets the mode before the owner, since chmod(2) of another user's file takes
// CAP_FOWNER, which the daemon has not, and chown(2) clears no permission. Both come
// before the fsync, which covers them.
func (d *Dir) fill(f file, name string, data []byte, perm fs.FileMode, uid, gid int) error {
	write := func() error { _, err := f.Write(data); return err }
	if err := d.do("write", name, write); err != nil {
		return err
	}
	if err := d.do("chmod", name, func() error { return f.Chmod(perm) }); err != nil {
		return err
	}
	if uid != Unowned || gid != Unowned {
		if err := d.do("chown", name, func() error { return f.Chown(uid, gid) }); err != nil {
			return err
		}
	}
	return d.do("fsync", name, f.Sync)
}

func (d *Dir) link(target, name string) error {
	return d.do("symlink", name, func() error { return d.disk.symlink(target, name) })
}

// Rename moves a file, link or directory to a name below the same Dir, in the
// place of any file or link that is there. If from is absent, an earlier call may
// have failed at the sync: the sync is made, and the error is [fs.ErrNotExist].
func (d *Dir) Rename(from, to string) error {
	if err := d.check("rename", from, to); err != nil {
		return err
	}
	moved := d.do("rename", to, func() error { return d.disk.rename(from, to) })
	if moved != nil && !errors.Is(moved, fs.ErrNotExist) {
		return moved
	}
	if err := d.syncEntry(to); err != nil {
		return err
	}
	// POSIX promises nothing of the old directory for a sync of the new one.
	if path.Dir(from) != path.Dir(to) {
		if err := d.syncEntry(from); err != nil {
			return err
		}
	}
	return moved
}

// Mkdir makes a directory, and those above it where they are absent, these with
// mode 0700. That the directory exists is fine; its mode is perm in the end.
func (d *Dir) Mkdir(name string, perm fs.FileMode) error {
	if err := d.check("mkdir", name); err != nil {
		return err
	}
	above := path.Dir(name)
	if err := d.ensure(above); err != nil {
		return err
	}
	info, err := d.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.WriteTree(name, Tree{Perm: perm})
	case err != nil:
		return err
	case !info.IsDir():
		return d.do("mkdir", name, func() error { return syscall.ENOTDIR })
	case info.Mode().Perm() != perm:
		if err := d.chmod(name, perm); err != nil {
			return err
		}
	}
	// Also if nothing was to be done: the call that did it may not have got so far.
	if err := d.sync(name); err != nil {
		return err
	}
	return d.sync(above)
}

// ensure is Mkdir for a directory that keeps its mode if it is there.
func (d *Dir) ensure(name string) error {
	if name == "." {
		return nil
	}
	perm := fs.FileMode(0o700)
	if info, err := d.Stat(name); err == nil {
		perm = info.Mode().Perm()
	}
	return d.Mkdir(name, perm)
}

func (d *Dir) chmod(name string, perm fs.FileMode) error {
	return d.do("chmod", name, func() error { return d.disk.chmod(name, perm) })
}

// Remove removes a file, a link or an empty directory. Absent is no error.
func (d *Dir) Remove(name string) error {
	err := d.do("remove", name, func() error { return d.disk.remove(name) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Also if it was absent: the call that removed it may not have got so far.
	return d.syncEntry(name)
}

// RemoveAll removes whatever is at name, with all that is below it. Absent is no
// error. At every instant all of it is there, or none: it goes by a temporary
// name, and what a failed call leaves of that is for [Dir.Clean].
func (d *Dir) RemoveAll(name string) error {
	if err := d.check("remove", name); err != nil {
		return err
	}
	temp := tempName(name)
	if err := d.discard(temp); err != nil {
		return err
	}
	err := d.do("remove", name, func() error { return d.disk.rename(name, temp) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.syncEntry(name); err != nil {
		return err
	}
	return d.discard(temp)
}

// Clean removes what a crash left of ours in this directory, not in those below.
func (d *Dir) Clean() error {
	entries, err := d.ReadDir(".")
	if err != nil {
		return err
	}
	temps := slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return !strings.HasPrefix(e.Name(), TempPrefix)
	})
	for _, e := range temps {
		if err := d.discard(e.Name()); err != nil {
			return err
		}
	}
	if len(temps) == 0 {
		return nil
	}
	return d.sync(".")
}

// discard removes what is at a temporary name and syncs nothing.
func (d *Dir) discard(name string) error {
	info, err := d.lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		entries, err := d.ReadDir(name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := d.discard(path.Join(name, e.Name())); err != nil {
				return err
			}
		}
	}
	return d.do("remove", name, func() error { return d.disk.remove(name) })
}

func (d *Dir) lstat(name string) (info fs.FileInfo, err error) {
	err = d.do("stat", name, func() (err error) {
		info, err = d.disk.lstat(name)
		return err
	})
	return info, err
}

func (d *Dir) sync(name string) error {
	return d.do("fsync", name, func() error { return d.disk.sync(name) })
}

// syncEntry makes the presence or the absence of name durable. Where its
// directory is absent too, there is nothing to sync.
func (d *Dir) syncEntry(name string) error {
	err := d.sync(path.Dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// tempName is a name beside name. It is a digest, since a name with a prefix may
// be longer than a file name can be, and always the same one, so that a second
// attempt finds what the first one left.
func tempName(name string) string {
	sum := sha256.Sum256([]byte(path.Base(name)))
	return path.Join(path.Dir(name), TempPrefix+hex.EncodeToString(sum[:8]))
}
