package durable

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const label = "system_u:object_r:container_file_t:s0"

// labelsOf are the labels below a directory of the machine, by absolute path.
func labelsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		var text [256]byte
		if n, err := unix.Lgetxattr(name, "security.selinux", text[:]); err == nil {
			found[name] = string(text[:n])
		}
		return err
	}))
	return found
}

// makeAll makes one of each kind, in the directory and in one below it, and returns
// what it made.
func makeAll(t *testing.T, d *Dir) []string {
	t.Helper()
	sub, err := d.Sub("s")
	require.NoError(t, err)
	require.NoError(t, errors.Join(
		d.WriteTree("t", Tree{
			Perm:  0o755,
			Files: map[string]File{"v/..1/a": {Perm: 0o400, UID: Unowned, GID: Unowned}},
			Links: map[string]string{"v/..data": "..1"},
		}), d.WriteFile("f", nil, 0o600), d.Symlink("old", "l"), d.Mkdir("d", 0o700), sub.WriteFile("f", nil, 0o600),
	))
	var made []string
	for _, name := range names(t, d) {
		if name, _, _ := strings.Cut(name, " "); name != "old" {
			made = append(made, filepath.Join(d.Path(), name))
		}
	}
	return made
}

func TestAllThatIsMadeIsLabelled(t *testing.T) {
	k := NewDisk()
	d := open(t, k)
	require.NoError(t, d.WriteFile("old", nil, 0o600))
	made := makeAll(t, d.Labelled(label, func(err error) { assert.NoError(t, err) }))
	want := map[string]string{}
	for _, name := range made {
		want[name] = label
	}
	assert.Equal(t, want, k.Labels(), "and what a link leads to is not")
	k.Crash()
	assert.Equal(t, want, k.Labels())
}

// Whether a label can be set on this machine depends on its kernel, its file system,
// and who runs the test.
func TestOfAllThatIsMadeEachIsLabelledOrTold(t *testing.T) {
	d, err := Open(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, d.WriteFile("old", nil, 0o600))
	old := labelsOf(t, d.Path())[filepath.Join(d.Path(), "old")]

	told := map[string]bool{}
	made := makeAll(t, d.Labelled(label, func(err error) {
		var path *fs.PathError
		require.ErrorAs(t, err, &path)
		assert.Equal(t, "label", path.Op)
		told[path.Path] = true
	}))
	found := labelsOf(t, d.Path())
	if len(told) == 0 {
		for _, name := range made {
			assert.Equal(t, label, found[name], name)
		}
	}
	for name := range told {
		assert.True(t, strings.HasPrefix(name, d.Path()), name)
		assert.NotEqual(t, label, found[name], name)
	}
	assert.Equal(t, old, found[filepath.Join(d.Path(), "old")], "what a link leads to")
}

func TestLabelThatCannotBeSetIsToldAndFailsNothing(t *testing.T) {
	k := NewDisk()
	d := open(t, k)
	plain := makeAll(t, open(t, NewDisk()))
	k.Fail(func(op, _ string) error {
		if op == "label" {
			return syscall.EACCES
		}
		return nil
	})
	var told []string
	assert.Equal(t, plain, makeAll(t, d.Labelled(label, func(err error) { told = append(told, err.Error()) })))
	assert.Empty(t, k.Labels())
	assert.Len(t, told, len(plain))
	assert.Contains(t, told[0], "label /d/"+TempPrefix)
	assert.Contains(t, told[0], ": permission denied")
}

func TestNobodyLabelsUnasked(t *testing.T) {
	k := NewDisk()
	d := open(t, k)
	k.Fail(func(op, _ string) error {
		require.NotEqual(t, "label", op)
		return nil
	})
	makeAll(t, d)
	require.ErrorIs(t, d.ReadOnly().disk.setLabel("f", label), syscall.EROFS)
}

func TestLabelComesBeforeTheOwner(t *testing.T) {
	k := NewDisk()
	var ops []string
	k.Fail(func(op, _ string) error {
		ops = append(ops, op)
		return nil
	})
	require.NoError(t, open(t, k).Labelled(label, nil).WriteOwned("f", nil, 0o600, 7, 8))
	assert.Subset(t, ops, []string{"label", "chown"})
	assert.Less(t, strings.Index(strings.Join(ops, " "), "label"), strings.Index(strings.Join(ops, " "), "chown"))
}
