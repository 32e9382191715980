package lab

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNodePathKnowsTheDisk(t *testing.T) {
	l := sample(t, Options{})
	path, err := l.NodePath("/var/lib/kubelet/pods")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(l.diskDir(), "var/lib/kubelet/pods"), path)
	for _, elsewhere := range []string{"/run/x", "/var/lib", "/var/lib/kubelet-other"} {
		_, err = l.NodePath(elsewhere)
		require.ErrorIs(t, err, ErrNoPower, elsewhere)
	}
}

func TestProcessIsFoundByItsNumbers(t *testing.T) {
	dir := t.TempDir()
	status := "Name:\tinit\nTgid:\t7\nNSpid:\t4711\t12\t1\nNSsid:\t0\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "status"), []byte(status), 0o600))
	require.Equal(t, []int{4711, 12, 1}, nsPIDs(dir))
	require.Empty(t, nsPIDs("/nowhere"))
}

func TestBootIDsAreUUIDsAndDiffer(t *testing.T) {
	a, b := newUUID(), newUUID()
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, a)
	require.NotEqual(t, a, b)
}

func TestBootKeepsTheMachineAndChangesTheBoot(t *testing.T) {
	l := sample(t, Options{})
	first, err := l.plan()
	require.NoError(t, err)
	second, err := l.plan()
	require.NoError(t, err)
	require.Regexp(t, `^[0-9a-f]{32}$`, first.MachineID)
	require.Equal(t, first.MachineID, second.MachineID)
	require.NotEqual(t, first.BootID, second.BootID)
}

func TestCgroupsGoChildrenFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lab")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "kubepods", "pod1", "container"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "kubepods", "pod2"), 0o700))
	require.NoError(t, removeCgroup(dir))
	require.NoDirExists(t, dir)
	require.NoError(t, removeCgroup(dir), "gone already")
}

func TestOpenTellsOfALabThatIsNotUp(t *testing.T) {
	_, err := Open(Options{Cache: t.TempDir()})
	require.ErrorIs(t, err, ErrNotUp)
}

func TestOneProcessChangesALab(t *testing.T) {
	l, other := sample(t, Options{}), sample(t, Options{})
	other.dir = l.dir
	require.NoError(t, l.take())
	require.ErrorIs(t, other.take(), ErrInUse)
	require.NoError(t, l.Close())
	require.NoError(t, other.take())
	require.NoError(t, other.Close())
}

func TestDownKeepsTheLogsOfPods(t *testing.T) {
	l := sample(t, Options{})
	require.NoError(t, l.makeDisk())
	require.NoError(t, os.WriteFile(filepath.Join(l.diskDir(), "var/log/pods/log"), []byte("said"), 0o600))
	for range 2 { // the second finds no disk
		require.NoError(t, l.clear(t.Context(), false))
		require.NoDirExists(t, l.diskDir())
		data, err := os.ReadFile(filepath.Join(l.logDir(), "pods", "log"))
		require.NoError(t, err)
		require.Equal(t, "said", string(data))
		require.NoError(t, os.MkdirAll(l.diskDir(), 0o755))
	}
	require.NoError(t, l.clear(t.Context(), true))
	require.NoDirExists(t, l.dir)
}
