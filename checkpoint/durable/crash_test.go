package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// calls is every changing call, each on a directory that before made.
var calls = []struct {
	name   string
	before func(t *testing.T, d *Dir)
	call   func(d *Dir) error
}{
	{"new file", none, func(d *Dir) error { return d.WriteFile("f", []byte("new"), 0o644) }},
	{"replaced file", oldFile, func(d *Dir) error { return d.WriteFile("f", []byte("new"), 0o644) }},
	{"equal file", oldFile, func(d *Dir) error { return d.WriteFile("f", []byte("old"), 0o600) }},
	{"owned file", oldFile, func(d *Dir) error { return d.WriteOwned("f", []byte("new"), 0o440, 7, 8) }},
	{"directory", none, func(d *Dir) error { return d.Mkdir("d", 0o755) }},
	{"mode of directory", oldDir, func(d *Dir) error { return d.Mkdir("d", 0o755) }},
	{"new link", none, func(d *Dir) error { return d.Symlink("new", "l") }},
	{"replaced link", oldLink, func(d *Dir) error { return d.Symlink("new", "l") }},
	{"rename", oldFile, func(d *Dir) error { return done(d.Rename("f", "g"), fs.ErrNotExist) }},
	{"move", oldFile, func(d *Dir) error { return done(d.Rename("f", "d/g"), fs.ErrNotExist) }},
	{"remove", oldFile, func(d *Dir) error { return d.Remove("f") }},
	{"remove link", oldLink, func(d *Dir) error { return d.RemoveAll("l") }},
	{"remove tree", oldTree, func(d *Dir) error { return d.RemoveAll("t") }},
	{"tree", none, func(d *Dir) error { return done(d.WriteTree("t", tree), fs.ErrExist) }},
	{"labelled tree", none, func(d *Dir) error { return done(labelledDir(d).WriteTree("t", tree), fs.ErrExist) }},
	{"labelled link", oldLink, func(d *Dir) error { return labelledDir(d).Symlink("new", "l") }},
}

// done is for calls that say by an error that an earlier one succeeded.
func done(err, already error) error {
	if errors.Is(err, already) {
		return nil
	}
	return err
}

var tree = Tree{
	Perm:  0o755,
	Dirs:  []string{"e"},
	Files: map[string]File{"v/..1/a": {Data: []byte("1"), Perm: 0o400, UID: 7, GID: 8}, "v/..1/n/b": {Perm: 0o444}},
	Links: map[string]string{"v/..data": "..1", "v/a": "..data/a", "v/n": "..data/n"},
}

func labelledDir(d *Dir) *Dir { return d.Labelled(label, func(error) {}) }

func none(*testing.T, *Dir) {}
func oldFile(t *testing.T, d *Dir) {
	require.NoError(t, errors.Join(d.WriteFile("f", []byte("old"), 0o600), d.Mkdir("d", 0o700)))
}
func oldDir(t *testing.T, d *Dir)  { require.NoError(t, d.Mkdir("d", 0o700)) }
func oldLink(t *testing.T, d *Dir) { require.NoError(t, d.Symlink("old", "l")) }
func oldTree(t *testing.T, d *Dir) { require.NoError(t, d.WriteTree("t", tree)) }
func open(t *testing.T, k *Disk) *Dir {
	d, err := k.Dir("/d")
	require.NoError(t, err)
	return d
}

// looks says what a restarted process finds once it has cleaned up.
func looks(t *testing.T, k *Disk) string {
	t.Helper()
	d := open(t, k)
	require.NoError(t, d.Clean())
	found := contents(t, k, d)
	require.NotContains(t, found, TempPrefix)
	return found
}

// contents is all that is in a directory, and which labels there are.
func contents(t *testing.T, k *Disk, d *Dir) string {
	t.Helper()
	return fmt.Sprint(strings.Join(names(t, d), "\n"), k.Labels())
}

// nth lets operations from the n-th on fail: only that one, or all of them. A label
// alone is none, since no call fails with it: see label_test.go.
func nth(n int, all bool, err error) func(op, name string) error {
	return func(op, _ string) error {
		if op == "label" && !all {
			return nil
		}
		n--
		if n == -1 || all && n < 0 {
			return err
		}
		return nil
	}
}

// crashes are the two extremes of what a disk may have written by itself, and
// many things between them.
func crashes() map[string]func() bool {
	kinds := map[string]func() bool{
		"nothing":    func() bool { return false },
		"everything": func() bool { return true },
	}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		kinds[fmt.Sprint("seed ", seed)] = func() bool { return rng.IntN(2) == 0 }
	}
	return kinds
}

func TestPowerCutAtEveryOperation(t *testing.T) {
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			for kind, keep := range crashes() {
				for n, done := 0, false; !done; n++ {
					k := NewDisk()
					c.before(t, open(t, k))
					old := looks(t, k)
					k.Fail(nth(n, true, errors.New("power is off")))
					done = c.call(open(t, k)) == nil
					k.Crash(keep)
					found := looks(t, k)
					require.NoError(t, c.call(open(t, k)), "a second attempt does it")
					want := looks(t, k)
					if done {
						assert.Equal(t, want, found, "%s: nil means durable", kind)
					} else {
						assert.Contains(t, []string{old, want}, found, "%s, at operation %d", kind, n)
					}
				}
			}
		})
	}
}

func TestEveryFailureLeavesOldOrNewAndNoTemporaries(t *testing.T) {
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC, syscall.EROFS} {
		for _, c := range calls {
			t.Run(fmt.Sprint(c.name, " ", cause), func(t *testing.T) {
				// A name goes first, and what is left of it is for Clean.
				removes := strings.HasPrefix(c.name, "remove ")
				for n, done := 0, false; !done; n++ {
					k := NewDisk()
					d := open(t, k)
					c.before(t, d)
					old := contents(t, k, d)
					open, fail := 0, nth(n, false, cause)
					k.Fail(func(op, name string) error {
						err := fail(op, name)
						switch {
						case op == "close":
							open--
						case op == "create" && err == nil:
							open++
						}
						return err
					})
					err := c.call(d)
					k.Fail(nil)
					assert.Zero(t, open, "files left open after %v", err)
					if done = err == nil; !done {
						require.ErrorIs(t, err, cause)
						var path *fs.PathError
						require.ErrorAs(t, err, &path)
						assert.True(t, strings.HasPrefix(path.Path, "/d"), path.Path)
					}
					found := contents(t, k, d)
					if !removes {
						assert.NotContains(t, found, TempPrefix, "after %v", err)
					}
					require.NoError(t, c.call(d))
					want := contents(t, k, d)
					assert.NotContains(t, want, TempPrefix)
					if !removes {
						assert.Contains(t, []string{old, want}, found, "after %v", err)
					}
					k.Crash()
					assert.Equal(t, want, looks(t, k), "a second attempt after %v is durable", err)
				}
			})
		}
	}
}

func TestSecretsAreClosedFromTheirFirstByte(t *testing.T) {
	k := NewDisk()
	d := open(t, k)
	var modes []fs.FileMode
	k.Fail(func(op, name string) error {
		if op == "write" {
			for name, n := range k.root.now.entries["d"].now.entries {
				if strings.HasPrefix(name, TempPrefix) {
					modes = append(modes, n.now.mode)
				}
			}
		}
		return nil
	})
	require.NoError(t, d.WriteFile("f", []byte("secret"), 0o644))
	require.NoError(t, d.WriteOwned("f", []byte("secret"), 0o444, 7, 8))
	assert.Equal(t, []fs.FileMode{0o600, 0o600}, modes)
}

func TestFailedFsyncIsNotBelieved(t *testing.T) {
	k := NewDisk()
	d := open(t, k)
	k.Fail(func(op, name string) error {
		if op == "fsync" {
			return syscall.EIO
		}
		return nil
	})
	require.ErrorIs(t, d.WriteFile("f", []byte("new"), 0o600), syscall.EIO)
	k.Fail(nil)

	f, err := d.disk.create("by hand")
	require.NoError(t, err)
	_, err = f.Write([]byte("lost"))
	require.NoError(t, err)
	k.Fail(func(op, name string) error { return syscall.EIO })
	require.Error(t, f.Sync())
	k.Fail(nil)
	require.NoError(t, f.Sync(), "as Linux, that reports a failed write once")
	require.NoError(t, d.sync("."))
	k.Crash()
	assert.Equal(t, []string{"by hand -rw------- "}, names(t, open(t, k)))
}

func TestTwinForgetsWhatWasNotSynced(t *testing.T) {
	k := NewDisk()
	d := open(t, k)
	require.NoError(t, d.WriteFile("gone", nil, 0o600))
	require.NoError(t, d.WriteFile("moved", nil, 0o600))
	require.NoError(t, d.Mkdir("mode", 0o700))
	before := names(t, d)
	require.NoError(t, d.disk.remove("gone"))
	require.NoError(t, d.disk.rename("moved", "here"))
	require.NoError(t, d.disk.mkdir("dir"))
	require.NoError(t, d.disk.symlink("x", "link"))
	require.NoError(t, d.disk.chmod("mode", 0o755))
	_, err := d.disk.create("file")
	require.NoError(t, err)
	after := names(t, d)

	k.Crash()
	assert.Equal(t, before, names(t, open(t, k)))

	again := func(keep func() bool) []string {
		d := open(t, k)
		require.NoError(t, errors.Join(d.disk.remove("gone"), d.disk.rename("moved", "here"), d.disk.mkdir("dir"),
			d.disk.symlink("x", "link"), d.disk.chmod("mode", 0o755), second(d.disk.create("file"))))
		k.Crash(keep)
		return names(t, open(t, k))
	}
	assert.Equal(t, after, again(func() bool { return true }))
	k = NewDisk()
	d = open(t, k)
	require.NoError(t, errors.Join(d.WriteFile("gone", nil, 0o600), d.WriteFile("moved", nil, 0o600), d.Mkdir("mode", 0o700)))
	n := 0
	some := again(func() bool { n++; return n%2 == 0 })
	assert.NotEqual(t, before, some)
	assert.NotEqual(t, after, some)
	assert.False(t, slices.Contains(some, "moved -rw------- ") && slices.Contains(some, "here -rw------- "), "a rename is whole")
}
