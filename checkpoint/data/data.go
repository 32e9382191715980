// Package data tells one data directory of a host from another.
//
// A program that finds its directory empty may begin anew: of an etcd member that is
// a second cluster. So a directory that is there, with the same etcd member in it as
// before, is told from one that is absent, empty, or another one's.
package data

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// Fingerprint is what is in a data directory. The zero value is that of one that is
// not there.
type Fingerprint struct {
	Present bool // it is there, and a directory
	Empty   bool // with nothing in it but what mkfs leaves
	// Etcd names the member whose write-ahead log is in it, and its cluster: both are
	// random, and stay for as long as the member lives. "": there is none.
	Etcd string
}

// Missing says why a program that ran on a directory with that Etcd must not start on
// this one; "": it may. A program of which no Etcd was known may start on any
// directory that is not empty.
func (f Fingerprint) Missing(etcd string) string {
	switch {
	case !f.Present:
		return "it is absent"
	case f.Empty:
		return "it is empty"
	case etcd == "" || etcd == f.Etcd:
		return ""
	case f.Etcd == "":
		return "it holds no etcd member, and held " + etcd
	}
	return fmt.Sprintf("it holds %s, and held %s", f.Etcd, etcd)
}

// Look takes the fingerprint of the directory at an absolute path of the host whose
// root directory is at root, such as /proc/1/root. No link in the path leads out of
// there: an absolute one begins at root, as it does for the host. An error means that
// nobody knows what is there.
func Look(root, dir string) (Fingerprint, error) {
	host, err := os.OpenRoot(root)
	if err != nil {
		return Fingerprint{}, err
	}
	defer host.Close()
	f, err := look(host, dir)
	if err != nil {
		return Fingerprint{}, fmt.Errorf("data directory %s: %w", dir, err)
	}
	return f, nil
}

func look(host *os.Root, dir string) (Fingerprint, error) {
	_, entries, err := list(host, dir)
	if entries == nil || err != nil {
		return Fingerprint{}, err
	}
	f := Fingerprint{Present: true}
	f.Empty = !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != "lost+found" })
	f.Etcd, err = etcd(host, path.Join(dir, "member", "wal"))
	return f, err
}

// list returns what is in a directory, sorted, and where that is below host; nil if
// there is no such directory.
func list(host *os.Root, dir string) (at string, entries []fs.DirEntry, err error) {
	if at, err = follow(host, dir); err == nil {
		entries, err = fs.ReadDir(host.FS(), at)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return at, nil, nil
	}
	return at, entries, err
}

// maxLinks is as many as the kernel follows in one path (path_resolution(7)).
const maxLinks = 40

// follow returns where an absolute path leads, without links in it and relative to
// host: to os.Root an absolute link is one that escapes.
func follow(host *os.Root, name string) (string, error) {
	at, rest := ".", strings.TrimPrefix(path.Clean(name), "/")
	for links := 0; rest != ""; {
		var first string
		first, rest, _ = strings.Cut(rest, "/")
		next := path.Join("/", at, first)[1:] // ".." of the root is the root
		if next == "" {
			at = "."
			continue
		}
		info, err := host.Lstat(next)
		if err != nil {
			return next, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		target, err := host.Readlink(next)
		if err != nil {
			return next, err
		}
		if links++; links > maxLinks {
			return next, errors.New("too many links")
		}
		if path.IsAbs(target) {
			at = "."
		}
		rest = strings.Trim(target+"/"+rest, "/")
	}
	return at, nil
}

// etcd names the member whose log is in that directory, "" if there is none.
func etcd(host *os.Root, wal string) (string, error) {
	wal, entries, err := list(host, wal)
	if err != nil {
		return "", err
	}
	newest := ""
	for _, e := range entries { // by their numbers
		if walName.MatchString(e.Name()) {
			newest = e.Name()
		}
	}
	if newest == "" {
		return "", nil
	}
	name := path.Join(wal, newest)
	file, err := host.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	head := make([]byte, walHead)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return "", err
	}
	member, cluster, err := parseWAL(head[:n])
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Sprintf("etcd member %x of cluster %x", member, cluster), nil
}
