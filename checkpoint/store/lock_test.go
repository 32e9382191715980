package store

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// lockerEnv makes this test binary a process that holds the lock of a directory
// until it is killed.
const lockerEnv = "POD_CHECKPOINTER_TEST_LOCK"

func TestMain(m *testing.M) {
	if dir := os.Getenv(lockerEnv); dir != "" {
		_, err := AwaitLock(dir)
		fmt.Println(err)
		select {}
	}
	os.Exit(m.Run())
}

// locker is a process that takes the lock of a directory as soon as it can, and
// says so.
func locker(t *testing.T, dir string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), lockerEnv+"="+dir)
	out, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
	return process, bufio.NewReader(out)
}

func holds(t *testing.T, out *bufio.Reader) {
	t.Helper()
	line, err := out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "<nil>\n", line)
}

// waits waits until the process stands in the kernel's lock table as a waiter for
// the file that is at the path now.
func waits(t *testing.T, dir string, process *exec.Cmd) {
	t.Helper()
	var file unix.Stat_t
	require.NoError(t, unix.Stat(LockPath(dir), &file))
	require.Eventually(t, func() bool {
		table, err := os.ReadFile("/proc/locks")
		require.NoError(t, err)
		for line := range strings.Lines(string(table)) {
			if strings.Contains(line, "->") && strings.Contains(line, fmt.Sprintf(" %d ", process.Process.Pid)) &&
				strings.Contains(line, fmt.Sprintf(":%d ", file.Ino)) {
				return true
			}
		}
		return false
	}, 10*time.Second, time.Millisecond)
}

func TestOneWriter(t *testing.T) {
	dir := t.TempDir()
	release, err := LockDir(dir)
	require.NoError(t, err)
	_, err = LockDir(dir)
	require.ErrorIs(t, err, ErrLocked)
	host, err2 := os.Hostname()
	require.NoError(t, err2)
	assert.EqualError(t, err, fmt.Sprintf("lock %s/lock: another daemon has it (process %d on %s)", dir, os.Getpid(), host))
	release()
	release, err = LockDir(dir)
	require.NoError(t, err)
	release()
	info, err := os.Stat(dir + "/lock")
	require.NoError(t, err)
	assert.Equal(t, "-rw-------", info.Mode().String())
}

func TestKernelTakesTheLockFromTheDead(t *testing.T) {
	dir := t.TempDir()
	first, out := locker(t, dir)
	holds(t, out)
	_, err := LockDir(dir)
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, fmt.Sprintf("process %d on ", first.Process.Pid))

	second, out := locker(t, dir)
	waits(t, dir, second)
	require.NoError(t, first.Process.Kill())
	holds(t, out)
}

// Whoever waits for a file that somebody replaced does not take it for the lock,
// and whoever holds one is told.
func TestLockIsTheFileAtItsPath(t *testing.T) {
	dir := t.TempDir()
	first, err := TryLock(dir)
	require.NoError(t, err)
	require.True(t, first.Held())
	waiting, out := locker(t, dir)
	waits(t, dir, waiting)

	require.NoError(t, os.Remove(LockPath(dir)))
	require.False(t, first.Held())
	second, err := TryLock(dir)
	require.NoError(t, err)
	require.True(t, second.Held())
	first.Release()
	waits(t, dir, waiting)
	_, err = TryLock(dir)
	require.ErrorIs(t, err, ErrLocked)
	second.Release()
	holds(t, out)
}

func TestLockNeedsTheDirectory(t *testing.T) {
	_, err := LockDir(t.TempDir() + "/no")
	require.ErrorIs(t, err, os.ErrNotExist)
}
