package lock

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func process(t *testing.T, c *child) Process {
	t.Helper()
	p, err := readProcess("/proc", c.pid())
	require.NoError(t, err)
	return p
}

// endedBy returns the signal that ended the child.
func endedBy(t *testing.T, c *child) syscall.Signal {
	t.Helper()
	_ = c.Wait()
	status, ok := c.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	return status.Signal()
}

// spared says that no signal has ended the child: it still ends by itself.
func spared(t *testing.T, c *child) {
	t.Helper()
	require.NoError(t, c.in.Close())
	require.NoError(t, c.Wait())
}

func stubborn(t *testing.T, path string) *child {
	t.Helper()
	c := start(t, "stubborn", []string{path})
	c.line(t, "holds")
	return c
}

func TestEndAsksFirst(t *testing.T) {
	c := holder(t, lockFile(t))
	require.NoError(t, End(t.Context(), "/proc", process(t, c), time.Hour))
	require.Equal(t, syscall.SIGTERM, endedBy(t, c))
}

func TestEndKillsAfterGrace(t *testing.T) {
	c := stubborn(t, lockFile(t))
	require.NoError(t, End(t.Context(), "/proc", process(t, c), time.Millisecond))
	require.Equal(t, syscall.SIGKILL, endedBy(t, c))
}

func TestEndWithoutGraceSendsNoTerm(t *testing.T) {
	c := holder(t, lockFile(t))
	// While it is stopped it takes no signal but SIGKILL; others are still
	// pending when it has ended.
	require.NoError(t, c.Process.Signal(syscall.SIGSTOP))
	require.NoError(t, End(t.Context(), "/proc", process(t, c), 0))
	status, err := os.ReadFile("/proc/" + strconv.Itoa(c.pid()) + "/status")
	require.NoError(t, err)
	require.Regexp(t, `ShdPnd:\t[0-9a-f]{12}[0-389ab][0-9a-f]{3}\n`, string(status), "bit 14, SIGTERM")
	require.Equal(t, syscall.SIGKILL, endedBy(t, c))
}

func TestEndGivesLockToNextBeforeItReturns(t *testing.T) {
	path := lockFile(t)
	first := holder(t, path)
	second := waiter(t, path)
	require.NoError(t, End(t.Context(), "/proc", process(t, first), 0))
	state, err := Inspect("/proc", path)
	require.NoError(t, err)
	if state.Holder != nil { // nil: woken and not yet there
		require.Equal(t, second.pid(), state.Holder.PID)
	}
	second.line(t, "holds")
}

func TestEndOfEndedProcess(t *testing.T) {
	c := holder(t, lockFile(t))
	p := process(t, c)
	c.kill()
	require.NoError(t, End(t.Context(), "/proc", p, time.Hour))
}

func TestEndSparesReusedPID(t *testing.T) {
	c := holder(t, lockFile(t))
	p := process(t, c)
	p.StartTime--
	require.NoError(t, End(t.Context(), "/proc", p, 0))
	spared(t, c)
}

func TestEndSparesOtherContainer(t *testing.T) {
	c := holder(t, lockFile(t))
	for _, change := range []func(*Process){
		func(p *Process) { p.ContainerID = "another" },
		func(p *Process) { p.PodUID = "another" },
	} {
		p := process(t, c)
		change(&p)
		require.ErrorContains(t, End(t.Context(), "/proc", p, 0), "moved from container")
	}
	spared(t, c)
}

func TestEndGivesUpWithContext(t *testing.T) {
	c := stubborn(t, lockFile(t))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, End(ctx, "/proc", process(t, c), time.Hour), context.DeadlineExceeded)
	spared(t, c) // its grace is not over
}

// A procfs of other process ids than ours names strangers.
func TestEndRefusesForeignProcessIDs(t *testing.T) {
	c, other := holder(t, lockFile(t)), holder(t, lockFile(t))
	p := process(t, c)
	proc := t.TempDir()
	require.NoError(t, os.Symlink("/proc/self", filepath.Join(proc, "self")))

	// Its process has an id that is nobody's here.
	gone := holder(t, lockFile(t))
	gone.kill()
	p.PID = gone.pid()
	require.NoError(t, os.Symlink("/proc/"+strconv.Itoa(c.pid()), filepath.Join(proc, strconv.Itoa(p.PID))))
	require.ErrorContains(t, End(t.Context(), proc, p, 0), "not in this pid namespace")

	// Its process has an id that is another process's here.
	p.PID = other.pid()
	require.NoError(t, os.Remove(filepath.Join(proc, "self")))
	self := filepath.Join(proc, "self", "fdinfo")
	require.NoError(t, os.MkdirAll(self, 0o755))
	for fd := range 100 {
		require.NoError(t, os.WriteFile(filepath.Join(self, strconv.Itoa(fd)), []byte("pos:\t0\nPid:\t99999\n"), 0o644))
	}
	require.ErrorContains(t, End(t.Context(), proc, p, 0), "this pid namespace must be the host's")

	spared(t, c)
	spared(t, other)
}
