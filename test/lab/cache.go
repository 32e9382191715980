package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// cache keeps what is slow to make: one folder for each kind and key. A folder
// that is there is complete, whatever happened to its maker.
type cache struct{ root string }

// defaultCache is $XDG_CACHE_HOME/pod-checkpointer, else ~/.cache/pod-checkpointer.
func defaultCache() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	return filepath.Join(dir, "pod-checkpointer"), nil
}

func (c cache) path(kind, key string) string { return filepath.Join(c.root, kind, key) }

func (c cache) has(kind, key string) bool {
	_, err := os.Stat(c.path(kind, key))
	return err == nil
}

// get returns the folder of kind and key; if it is absent, fill makes its
// contents first. Of several that want the same one, one makes it and the
// others wait.
func (c cache) get(ctx context.Context, kind, key string, fill func(dir string) error) (string, error) {
	dir := c.path(kind, key)
	if c.has(kind, key) {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	lock := flock.New(dir + ".lock")
	if _, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil {
		return "", fmt.Errorf("wait for another builder of %s: %w", kind, err)
	}
	defer lock.Close()
	if c.has(kind, key) {
		return dir, nil
	}
	temp := dir + ".part" // of a maker that died, if it is there
	if err := removeAll(temp); err != nil {
		return "", err
	}
	if err := os.Mkdir(temp, 0o755); err != nil {
		return "", err
	}
	if err := fill(temp); err != nil {
		return "", errors.Join(err, removeAll(temp))
	}
	return dir, os.Rename(temp, dir)
}

// removeAll is os.RemoveAll with a better word for what usually goes wrong.
func removeAll(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove %s (is something of a lab still mounted or running there?): %w", path, err)
	}
	return nil
}

// keyOf digests words into the name of a cache folder.
func keyOf(words ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", words))
	return hex.EncodeToString(sum[:8])
}

func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// cloneTree copies a folder with links to its large files, which nobody changes
// in place (images' blobs and layers), and true copies of the small ones.
func cloneTree(from, to string) error {
	const large = 1 << 20
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		info, err := entry.Info()
		if err != nil {
			return err
		}
		switch {
		case entry.IsDir():
			if err := os.MkdirAll(target, info.Mode().Perm()); err != nil {
				return err
			}
			return os.Chmod(target, info.Mode())
		case entry.Type() == fs.ModeSymlink:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case info.Mode().IsRegular() && info.Size() > large && filepath.Ext(path) != ".db":
			return linkOrCopy(path, target, info.Mode())
		case info.Mode().IsRegular():
			return copyFile(path, target, info.Mode())
		}
		return nil // sockets and pipes belong to a process that is gone
	})
}

func linkOrCopy(from, to string, mode fs.FileMode) error {
	if os.Link(from, to) == nil {
		return nil
	}
	return copyFile(from, to, mode) // another file system
}

// copyFile replaces to by a whole copy of from.
func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(to), ".copy-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Chmod(mode), out.Close()); err == nil {
		err = os.Rename(out.Name(), to)
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, errors.Join(err, os.Remove(out.Name())))
	}
	return nil
}
