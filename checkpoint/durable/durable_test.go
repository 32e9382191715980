package durable

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// onBoth runs a test on a directory of the machine and on one of the twin, so
// that what is proved on the twin holds on the machine.
func onBoth(t *testing.T, test func(t *testing.T, d *Dir)) {
	t.Run("real", func(t *testing.T) {
		d, err := Open(t.TempDir())
		require.NoError(t, err)
		test(t, d)
	})
	t.Run("twin", func(t *testing.T) {
		d, err := NewDisk().Dir("/var/lib/test")
		require.NoError(t, err)
		test(t, d)
	})
}

// names lists everything below a directory, with mode and contents.
func names(t *testing.T, d *Dir) []string {
	t.Helper()
	var all []string
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := d.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			info, err := e.Info()
			require.NoError(t, err)
			line := name + " " + info.Mode().String()
			if e.Type().IsRegular() {
				data, err := d.ReadFile(name)
				require.NoError(t, err)
				line += " " + string(data)
			}
			all = append(all, line)
			if e.IsDir() {
				walk(name)
			}
		}
	}
	walk(".")
	return all
}

func TestWritesAreSeen(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Dir) {
		require.NoError(t, d.WriteFile("old", []byte("1"), 0o644))
		require.NoError(t, d.WriteFile("old", []byte("22"), 0o600))
		require.NoError(t, d.Mkdir("a/b", 0o755))
		require.NoError(t, d.WriteFile("a/b/c", nil, 0o600))
		require.NoError(t, d.Symlink("a/b", "link"))
		require.NoError(t, d.Symlink("a", "link"))
		require.NoError(t, d.WriteFile("link/b/d", []byte("4"), 0o640))
		require.NoError(t, d.Rename("a/b/c", "a/e"))
		sub, err := d.Sub("s/t")
		require.NoError(t, err)
		require.NoError(t, sub.WriteFile("u", []byte("5"), 0o600))
		assert.Equal(t, []string{
			"a drwx------", "a/b drwxr-xr-x", "a/b/d -rw-r----- 4", "a/e -rw------- ",
			"link Lrwxrwxrwx", "old -rw------- 22",
			"s drwx------", "s/t drwx------", "s/t/u -rw------- 5",
		}, names(t, d))
		assert.Equal(t, filepath.Join(d.Path(), "s/t"), sub.Path())

		info, err := d.Stat("link")
		require.NoError(t, err)
		assert.True(t, info.IsDir(), "Stat follows links")
		target, err := d.Readlink("link")
		require.NoError(t, err)
		assert.Equal(t, "a", target)
		_, err = d.Readlink("old")
		require.ErrorIs(t, err, syscall.EINVAL, "a file is no link")

		require.NoError(t, d.Remove("old"))
		require.NoError(t, d.Remove("old"), "absent is no error")
		require.NoError(t, d.Remove("no/such"), "absent is no error")
		require.NoError(t, d.RemoveAll("link"))
		require.ErrorIs(t, d.Remove("a"), syscall.ENOTEMPTY)
		require.NoError(t, d.RemoveAll("s"))
		require.NoError(t, d.RemoveAll("s"), "absent is no error")
		assert.Equal(t, []string{"a drwx------", "a/b drwxr-xr-x", "a/b/d -rw-r----- 4", "a/e -rw------- "}, names(t, d))
	})
}

func TestMkdirSetsModeOfExisting(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Dir) {
		require.NoError(t, d.Mkdir("a/b", 0o755))
		require.NoError(t, d.Mkdir("a/b", 0o700))
		require.NoError(t, d.Mkdir("a/b/c", 0o700))
		_, err := d.Sub("a/b")
		require.NoError(t, err)
		assert.Equal(t, []string{"a drwx------", "a/b drwx------", "a/b/c drwx------"}, names(t, d))
		require.NoError(t, d.WriteFile("f", nil, 0o600))
		require.ErrorIs(t, d.Mkdir("f", 0o700), syscall.ENOTDIR)
		require.ErrorIs(t, d.Mkdir("f/x", 0o700), syscall.ENOTDIR)
	})
}

func TestTreeIsWhole(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Dir) {
		tree := Tree{
			Perm:  0o755,
			Dirs:  []string{"empty"},
			Files: map[string]File{"v/..1/n/f": {Data: []byte("x"), Perm: 0o440, UID: os.Getuid(), GID: os.Getgid()}},
			Links: map[string]string{"v/..data": "..1", "v/n": "..data/n"},
		}
		require.NoError(t, d.WriteTree("t", tree))
		assert.Equal(t, []string{
			"t drwxr-xr-x", "t/empty drwxr-xr-x", "t/v drwxr-xr-x", "t/v/..1 drwxr-xr-x", "t/v/..1/n drwxr-xr-x",
			"t/v/..1/n/f -r--r----- x", "t/v/..data Lrwxrwxrwx", "t/v/n Lrwxrwxrwx",
		}, names(t, d))
		data, err := d.ReadFile("t/v/n/f")
		require.NoError(t, err)
		assert.Equal(t, "x", string(data))

		before := names(t, d)
		require.ErrorIs(t, d.WriteTree("t", tree), fs.ErrExist)
		for _, name := range []string{"../x", "/x", "", "a/../../x", "."} {
			require.Error(t, d.WriteTree("bad", Tree{Perm: 0o700, Files: map[string]File{name: {}}}), name)
		}
		assert.Equal(t, before, names(t, d), "a refused tree leaves nothing")
	})
}

func TestNamesNeverEscape(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Dir) {
		require.NoError(t, d.Mkdir("in", 0o700))
		require.NoError(t, d.WriteFile("secret", []byte("x"), 0o600))
		in, err := d.Sub("in")
		require.NoError(t, err)
		require.NoError(t, in.Symlink("..", "up"))
		require.NoError(t, in.Symlink(d.Path(), "abs"))
		before := names(t, d)

		for _, name := range []string{
			"..", "../secret", "x/../../secret", "./x", "x//y", "", "/", filepath.Join(d.Path(), "secret"),
			"up/secret", "abs/secret", "up/in/../secret",
		} {
			for op, err := range every(in, name) {
				require.Error(t, err, "%s %q", op, name)
			}
		}
		assert.Equal(t, before, names(t, d))
		for op, err := range every(in, "up/secret") {
			assert.ErrorContains(t, err, "escapes", op)
		}

		// The link itself is in the directory and may be replaced.
		require.NoError(t, in.WriteFile("abs", []byte("y"), 0o600))
		require.NoError(t, in.RemoveAll("up"))
		assert.Equal(t, []string{"in drwx------", "in/abs -rw------- y", "secret -rw------- x"}, names(t, d))
	})
}

// every tries each method with a name.
func every(d *Dir, name string) map[string]error {
	_, sub := d.Sub(name)
	_, read := d.ReadFile(name)
	_, list := d.ReadDir(name)
	_, stat := d.Stat(name)
	_, link := d.Readlink(name)
	return map[string]error{
		"Sub": sub, "ReadFile": read, "ReadDir": list, "Stat": stat, "Readlink": link,
		"WriteFile": d.WriteFile(name, []byte("evil"), 0o600),
		"Symlink":   d.Symlink("evil", name),
		"WriteTree": d.WriteTree(name, Tree{Perm: 0o700}),
		"Mkdir":     d.Mkdir(name, 0o700),
		"Rename":    d.Rename(name, "x"),
		"RenameTo":  d.Rename("up", name),
		"Remove":    d.Remove(name),
		"RemoveAll": d.RemoveAll(name),
	}
}

func TestCleanRemovesOnlyOurTemporaries(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Dir) {
		require.NoError(t, d.WriteFile(".gitkeep", nil, 0o600))
		require.NoError(t, d.WriteFile(TempPrefix+"1", nil, 0o600))
		require.NoError(t, d.Mkdir(TempPrefix+"2/a/b", 0o700))
		require.NoError(t, d.WriteFile("sub", nil, 0o600))
		require.NoError(t, d.Mkdir("deep", 0o700))
		require.NoError(t, d.WriteFile("deep/"+TempPrefix+"3", nil, 0o600))
		require.NoError(t, d.Clean())
		assert.Equal(t, []string{
			".gitkeep -rw------- ", "deep drwx------", "deep/" + TempPrefix + "3 -rw------- ", "sub -rw------- ",
		}, names(t, d))
	})
}

func TestTemporaryNamesBeginWithDotAndFit(t *testing.T) {
	name := strings.Repeat("n", 255)
	onBoth(t, func(t *testing.T, d *Dir) {
		require.NoError(t, d.WriteFile(name, nil, 0o600), "a temporary name is never longer than a name may be")
		require.NoError(t, d.RemoveAll(name))
	})
	assert.True(t, strings.HasPrefix(path.Base(tempName("a/"+name)), TempPrefix))
	assert.Equal(t, "a", path.Dir(tempName("a/"+name)), "in the same directory")
	assert.True(t, strings.HasPrefix(TempPrefix, "."))
}

func TestLeftOversAreNoHindrance(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Dir) {
		for name, call := range map[string]func(name string) error{
			"file": func(name string) error { return d.WriteFile(name, nil, 0o600) },
			"link": func(name string) error { return d.Symlink("x", name) },
			"tree": func(name string) error { return d.WriteTree(name, Tree{Perm: 0o700}) },
			"gone": d.RemoveAll,
		} {
			require.NoError(t, d.Mkdir(tempName(name)+"/of/a/crash", 0o755))
			require.NoError(t, call(name), name)
			require.NoError(t, d.RemoveAll(name))
		}
		assert.Empty(t, names(t, d))
	})
}

func TestNewFilesAreClosedToOthers(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Dir) {
		f, err := d.disk.create("f")
		require.NoError(t, err)
		defer f.Close()
		require.NoError(t, d.disk.mkdir("d"))
		assert.Equal(t, []string{"d drwx------", "f -rw------- "}, names(t, d), "whatever the umask is")
	})
}

func TestOwnersAreSet(t *testing.T) {
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 65532, 65533 // another one, where that is allowed
	}
	onBoth(t, func(t *testing.T, d *Dir) {
		require.NoError(t, d.WriteOwned("f", []byte("x"), 0o440, uid, gid))
		info, err := d.Stat("f")
		require.NoError(t, err)
		stat := info.Sys().(*syscall.Stat_t)
		assert.Equal(t, []int{uid, gid}, []int{int(stat.Uid), int(stat.Gid)})
		assert.Equal(t, fs.FileMode(0o440), info.Mode())
	})
}

func TestErrorsNameOperationAndPath(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Dir) {
		require.NoError(t, d.Mkdir("dir", 0o700))
		at := d.Path()
		assert.EqualError(t, second(d.ReadFile("no")), "read "+at+"/no: no such file or directory")
		assert.EqualError(t, second(d.ReadDir("no")), "readdir "+at+"/no: no such file or directory")
		assert.EqualError(t, second(d.Stat("no")), "stat "+at+"/no: no such file or directory")
		assert.EqualError(t, d.WriteFile("dir", nil, 0o600), "rename "+at+"/dir: file exists")
		assert.EqualError(t, d.Mkdir("../x", 0o700), "mkdir "+at+`: name "../x" is not one below the directory`)
		assert.ErrorIs(t, second(d.ReadFile("no")), fs.ErrNotExist)
	})
}

func second[T any](_ T, err error) error { return err }

func TestCreateMakesWhatIsAbsent(t *testing.T) {
	above := t.TempDir()
	d, err := Create(above+"/a/b", 0o700)
	require.NoError(t, err)
	assert.Equal(t, above+"/a/b", d.Path())
	d, err = Open(above)
	require.NoError(t, err)
	assert.Equal(t, []string{"a drwxr-xr-x", "a/b drwx------"}, names(t, d))

	require.NoError(t, os.Chmod(above+"/a/b", 0o755), "as the kubelet makes a hostPath DirectoryOrCreate")
	_, err = Create(above+"/a/b", 0o700)
	require.NoError(t, err)
	assert.Equal(t, []string{"a drwxr-xr-x", "a/b drwx------"}, names(t, d))

	_, err = Open(above + "/no")
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "open "+above+"/no: ")
}
