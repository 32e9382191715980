package store

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lockerEnv makes this test binary a process that holds the lock of a directory
// until it is killed.
const lockerEnv = "POD_CHECKPOINTER_TEST_LOCK"

func TestMain(m *testing.M) {
	if dir := os.Getenv(lockerEnv); dir != "" {
		_, err := LockDir(dir)
		fmt.Println(err)
		select {}
	}
	os.Exit(m.Run())
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
	locker := exec.Command(os.Args[0])
	locker.Env = append(os.Environ(), lockerEnv+"="+dir)
	out, err := locker.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, locker.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "<nil>\n", line)

	_, err = LockDir(dir)
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, fmt.Sprintf("process %d on ", locker.Process.Pid))
	require.NoError(t, locker.Process.Kill())
	require.Error(t, locker.Wait())
	release, err := LockDir(dir)
	require.NoError(t, err)
	release()
}

func TestLockNeedsTheDirectory(t *testing.T) {
	_, err := LockDir(t.TempDir() + "/no")
	require.ErrorIs(t, err, os.ErrNotExist)
}
