package lock

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInspectorSeesWhatInspectSees(t *testing.T) {
	path := lockFile(t)
	i := NewInspector("/proc")
	neighbour := holder(t, filepath.Join(filepath.Dir(path), "etcd.lock"))
	same := func() State {
		t.Helper()
		want, err := Inspect("/proc", path)
		require.NoError(t, err)
		for range 2 {
			got, err := i.Inspect(path)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		return want
	}
	same()
	first := holder(t, path)
	same()
	waits := waiter(t, path)
	require.Len(t, same().Waiters, 1)

	require.NoError(t, os.Remove(path))
	require.True(t, same().Split, "they use a file that is gone")
	second := holder(t, path)
	require.True(t, same().Split, "and still do")
	first.kill()
	waits.kill()
	require.False(t, same().Split)

	// A neighbour's file comes to have the path, and loses it.
	require.NoError(t, os.Rename(filepath.Join(filepath.Dir(path), "etcd.lock"), path))
	require.Equal(t, neighbour.pid(), same().Holder.PID)
	second.kill()
	require.NoError(t, os.Remove(path))
	require.True(t, same().Split)
}

// What an Inspector has found out of a process it does not look up again.
func TestInspectorReadsDescriptorsOnce(t *testing.T) {
	path := lockFile(t)
	neighbour := holder(t, filepath.Join(filepath.Dir(path), "etcd.lock"))
	id, err := identify(path)
	require.NoError(t, err)
	table, _, err := readTable("/proc")
	require.NoError(t, err)
	i := NewInspector("/proc")
	i.look(id, table)
	for _, e := range table {
		if e.pid != neighbour.pid() {
			continue
		}
		require.False(t, i.split(id, "/proc", e))
		require.True(t, i.known[path].apart[e])
		return
	}
	t.Fatal("the neighbour is not in the table")
}

func TestInspectorTellsThatALockMoved(t *testing.T) {
	path := lockFile(t)
	i := NewInspector("/proc")
	moved := func() bool {
		t.Helper()
		moved, err := i.Moved()
		require.NoError(t, err)
		return moved
	}
	look := func() {
		t.Helper()
		_, err := i.Inspect(path)
		require.NoError(t, err)
		require.False(t, moved(), "not since")
	}
	first := holder(t, path)
	require.False(t, moved(), "nobody has asked for it")
	look()
	second := waiter(t, path)
	require.True(t, moved(), "one waits")
	require.False(t, moved(), "it was told")
	look()
	stranger := holder(t, lockFile(t))
	require.False(t, moved(), "a lock of others")
	first.kill()
	second.line(t, "holds")
	require.True(t, moved(), "another one holds")
	look()
	second.kill()
	require.True(t, moved(), "it is free")
	look()
	stranger.kill()
	require.False(t, moved())

	_, err := NewInspector(t.TempDir()).Moved()
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A lock may get another name: nobody looks at the file of the old one any more.
func TestInspectorTellsOnceOfAFileThatIsOfUseNoMore(t *testing.T) {
	old := lockFile(t)
	renamed := filepath.Join(filepath.Dir(old), "renamed.lock")
	i := NewInspector("/proc")
	first, second := holder(t, old), holder(t, renamed)
	for _, path := range []string{old, renamed} {
		_, err := i.Inspect(path)
		require.NoError(t, err)
	}
	first.kill()
	second.kill()
	for _, want := range []bool{true, false, false} { // both at once
		_, err := i.Inspect(renamed)
		require.NoError(t, err)
		moved, err := i.Moved()
		require.NoError(t, err)
		require.Equal(t, want, moved)
	}
}
