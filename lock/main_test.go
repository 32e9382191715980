package lock

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const helperEnv = "LOCK_TEST_HELPER"

// TestMain is also the process that holds or waits for a lock in the tests.
func TestMain(m *testing.M) {
	if mode := os.Getenv(helperEnv); mode != "" {
		if err := helper(mode, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func helper(mode string, args []string) error {
	switch mode {
	case "hold": // until its standard input ends
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "exec": // becomes the program of the arguments
		return helperExec(args[0], args[1:])
	case "idle":
		fmt.Println("idle")
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	}
	if _, err := Acquire(args[0]); err != nil {
		return err
	}
	fmt.Println("holds")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// helperExec leaves to the program what it must not see: a signal that is
// ignored, one that is caught and one that is blocked.
func helperExec(path string, argv []string) error {
	unix.CloseOnExec(3)
	l, err := Acquire(path)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGUSR2)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM)
	runtime.LockOSThread()
	blocked := unix.Sigset_t{Val: [16]uint64{1 << (unix.SIGUSR1 - 1)}}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, nil); err != nil {
		return err
	}
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, helperEnv+"=") {
			env = append(env, entry)
		}
	}
	return l.Exec(argv, env)
}

// child is a process of the test, which ends with it.
type child struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (c *child) pid() int { return c.Process.Pid }

// start runs a helper; files become its descriptors from 3 on.
func start(t testing.TB, mode string, args []string, files ...*os.File) *child {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := &child{Cmd: exec.Command(self, args...)}
	c.Env = append(os.Environ(), helperEnv+"="+mode)
	c.Stderr = os.Stderr
	c.ExtraFiles = files
	c.in, err = c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	c.out = bufio.NewReader(out)
	require.NoError(t, c.Start())
	t.Cleanup(c.kill)
	return c
}

// kill ends the child and waits for that; it may be called again.
func (c *child) kill() {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// line waits for the child to say want.
func (c *child) line(t testing.TB, want string) {
	t.Helper()
	got, err := c.out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, want, strings.TrimSuffix(got, "\n"))
}

// holder starts a process that holds the lock; waiter one that waits for it,
// as the last of those who wait.
func holder(t testing.TB, path string) *child {
	t.Helper()
	c := start(t, "hold", []string{path})
	c.line(t, "holds")
	return c
}

func waiter(t testing.TB, path string) *child {
	t.Helper()
	c := start(t, "hold", []string{path})
	awaitWaiter(t, path, c)
	return c
}

func awaitWaiter(t testing.TB, path string, c *child) {
	t.Helper()
	require.Eventually(t, func() bool {
		state, err := Inspect("/proc", path)
		n := len(state.Waiters)
		return err == nil && n > 0 && state.Waiters[n-1].PID == c.pid()
	}, 10*time.Second, time.Millisecond)
}

func lockFile(t testing.TB) string {
	return filepath.Join(t.TempDir(), "kube-apiserver.lock")
}

// pids are those of the holder and of the waiters in their order.
func pids(t testing.TB, path string) []int {
	t.Helper()
	state, err := Inspect("/proc", path)
	require.NoError(t, err)
	require.NotNil(t, state.Holder)
	all := []int{state.Holder.PID}
	for _, w := range state.Waiters {
		all = append(all, w.PID)
	}
	return all
}
