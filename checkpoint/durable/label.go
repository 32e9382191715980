package durable

import "path/filepath"

// Labelled returns the same directory, for what containers are to read on a host
// with SELinux: each file, directory and link that is made through it gets the label.
// It is as durable as a mode is; that of a link, of which there is no fsync, comes
// before a rename, whose fsync has it on file systems with one journal (ext4, XFS).
//
// A label that can't be set fails no call: what was to be made is there without it,
// and failed is told, before the call returns, by an error that names the path. It is
// set before the owner, since SELinux lets nobody but the owner of a file, or who has
// CAP_FOWNER, set it (selinux_inode_setxattr in Linux's security/selinux/hooks.c).
func (d *Dir) Labelled(label string, failed func(error)) *Dir {
	return &Dir{path: d.path, disk: labelled{d.disk, d, label, failed}}
}

type labelled struct {
	disk
	dir    *Dir // the same without a label
	label  string
	failed func(error)
}

// made labels what a call has just made, if it has.
func (l labelled) made(name string, err error) error {
	if err != nil {
		return err
	}
	if err := l.dir.do("label", name, func() error { return l.disk.setLabel(name, l.label) }); err != nil {
		l.failed(err)
	}
	return nil
}

func (l labelled) create(name string) (file, error) {
	f, err := l.disk.create(name)
	return f, l.made(name, err)
}

func (l labelled) mkdir(name string) error { return l.made(name, l.disk.mkdir(name)) }

func (l labelled) symlink(target, name string) error {
	return l.made(name, l.disk.symlink(target, name))
}

func (l labelled) sub(name string) (disk, error) {
	below, err := l.disk.sub(name)
	if err != nil {
		return nil, err
	}
	dir := &Dir{path: filepath.Join(l.dir.path, name), disk: below}
	return labelled{below, dir, l.label, l.failed}, nil
}
