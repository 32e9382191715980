package lock

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestHeldByTellsHoldingFromWaiting(t *testing.T) {
	path := lockFile(t)
	started := time.Now()
	first := holder(t, path)
	second := waiter(t, path)
	other := start(t, "idle", nil)
	other.line(t, "idle")

	held, err := HeldBy("/proc", first.pid(), path)
	require.NoError(t, err)
	require.True(t, held.Yes)
	require.GreaterOrEqual(t, held.For, time.Duration(0))
	require.LessOrEqual(t, held.For, time.Since(started)+time.Millisecond)
	for _, c := range []*child{second, other} {
		held, err := HeldBy("/proc", c.pid(), path)
		require.NoError(t, err)
		require.False(t, held.Yes)
	}

	first.kill()
	_, err = HeldBy("/proc", first.pid(), path)
	require.ErrorIs(t, err, errGone, "no process: not known")
	second.line(t, "holds")
	held, err = HeldBy("/proc", second.pid(), path)
	require.NoError(t, err)
	require.True(t, held.Yes)
}

// The time is that of the acquisition, whatever happens to the file's own.
func TestHeldForIsNotMovedByClock(t *testing.T) {
	path := lockFile(t)
	l, err := Acquire(path)
	require.NoError(t, err)
	future := time.Now().Add(100 * time.Hour)
	require.NoError(t, os.Chtimes(path, future, future))
	var boot unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot))
	_, err = unix.Seek(l.fd, boot.Nano()/1e6-5000, unix.SEEK_SET)
	require.NoError(t, err)

	held, err := HeldBy("/proc", os.Getpid(), path)
	require.NoError(t, err)
	require.InDelta(t, 5, held.For.Seconds(), 1)
}

func TestHeldOfAnotherProgramsLock(t *testing.T) {
	path := lockFile(t)
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()

	require.NoError(t, unix.Flock(int(file.Fd()), unix.LOCK_SH))
	held, err := HeldBy("/proc", os.Getpid(), path)
	require.NoError(t, err)
	require.False(t, held.Yes, "a shared lock excludes nobody who shares it")

	require.NoError(t, unix.Flock(int(file.Fd()), unix.LOCK_EX))
	held, err = HeldBy("/proc", os.Getpid(), path)
	require.NoError(t, err)
	require.True(t, held.Yes)
	require.Negative(t, held.For, "not known")
}

func TestHeldByWithoutFile(t *testing.T) {
	held, err := HeldBy("/proc", os.Getpid(), lockFile(t))
	require.NoError(t, err)
	require.False(t, held.Yes)
	_, err = HeldBy(filepath.Join(t.TempDir(), "no-proc"), 1, lockFile(t))
	require.ErrorIs(t, err, errGone)
}
