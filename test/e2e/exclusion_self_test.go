//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestExclusionSeesTwo: what watches over all other scenarios would see two. Here
// are two that hold a lock, the second on a file that took the name of the
// first's, and two sockets that listen on one port.
func TestExclusionSeesTwo(t *testing.T) {
	s := begin(t)
	root, err := os.MkdirTemp(s.path("/tmp"), "e2e-") //nolint:usetesting // the lock table tells the device of a tmpfs rightly, of other file systems not always
	require.NoError(s, err)
	s.Cleanup(func() { _ = os.RemoveAll(root) })
	lock := filepath.Join(root, "root", lockPath)
	require.NoError(s, os.MkdirAll(filepath.Dir(lock), 0o755))
	require.NoError(s, os.Mkdir(filepath.Join(root, "net"), 0o755))
	e := &exclusion{root: root, ours: map[uint64]bool{}}

	hold(s, lock)
	require.Len(s, e.settled(e.holders), 1)
	require.NoError(s, os.Remove(lock))
	hold(s, lock)
	require.Len(s, e.settled(e.holders), 2)
	forgetful := &exclusion{root: root, ours: map[uint64]bool{}}
	require.Len(s, forgetful.settled(forgetful.holders), 2, "by one who never saw the first file at its path")

	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	const row = "   0: 0%d00007F:192B 00000000:0000 %s 00000000:00000000 00:00000000 00000000     0        0 %d 1 0 100 0 0 10 0\n"
	one := head + fmt.Sprintf(row, 1, "0A", 11)
	require.NoError(s, os.WriteFile(filepath.Join(root, "net/tcp"), []byte(one+fmt.Sprintf(row, 1, "01", 12)), 0o600))
	require.Len(s, e.settled(e.listeners), 1, "a connection does not listen")
	require.NoError(s, os.WriteFile(filepath.Join(root, "net/tcp6"), []byte(head+fmt.Sprintf(row, 2, "0A", 13)), 0o600))
	require.Len(s, e.settled(e.listeners), 2)

	e.samples = 1
	require.ErrorContains(s, e.judge(beat), "a holder in 0 samples")
}

func hold(s *scene, path string) {
	s.Helper()
	f, err := os.Create(path)
	require.NoError(s, err)
	s.Cleanup(func() { _ = f.Close() })
	require.NoError(s, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
}
