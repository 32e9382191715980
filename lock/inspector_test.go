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
	i.look(id)
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
