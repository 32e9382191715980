package lock

import (
	"context"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAwaitReturnsWhenTheProcessEnds(t *testing.T) {
	path := lockFile(t)
	first := holder(t, path)
	second := waiter(t, path)
	p := process(t, first)
	done := make(chan error, 1)
	go func() { done <- Await(t.Context(), "/proc", p) }()
	select {
	case err := <-done:
		t.Fatalf("it has not ended: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	require.NoError(t, first.Process.Kill())
	require.NoError(t, <-done)
	state, err := Inspect("/proc", path)
	require.NoError(t, err)
	if state.Holder != nil { // nil: woken and not yet there
		require.Equal(t, second.pid(), state.Holder.PID, "its lock is taken from it")
	}
}

func TestAwaitOfEndedProcess(t *testing.T) {
	c := holder(t, lockFile(t))
	p := process(t, c)
	p.StartTime--
	require.NoError(t, Await(t.Context(), "/proc", p), "another process has its id")
	p = process(t, c)
	c.kill()
	require.NoError(t, Await(t.Context(), "/proc", p))
}

func TestAwaitGivesUpWithContext(t *testing.T) {
	c := holder(t, lockFile(t))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, Await(ctx, "/proc", process(t, c)), context.DeadlineExceeded)
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Await(ctx, "/proc", process(t, c)), context.Canceled)
	spared(t, c)
}

func TestAwaitTakesNoThread(t *testing.T) {
	const many = 64
	p := process(t, holder(t, lockFile(t)))
	before := pidfds(t) // package os has one of each child
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	for range many {
		go func() { done <- Await(ctx, "/proc", p) }()
	}
	require.Eventually(t, func() bool { return pidfds(t) == before+many }, 5*time.Second, time.Millisecond)
	require.Less(t, threads(t), many/2)
	cancel()
	for range many {
		require.ErrorIs(t, <-done, context.Canceled)
	}
	require.Equal(t, before, pidfds(t), "no descriptor stays open")
}

func pidfds(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range entries {
		text, _ := os.ReadFile("/proc/self/fdinfo/" + e.Name()) // closed since
		if regexp.MustCompile(`(?m)^Pid:`).Match(text) {
			n++
		}
	}
	return n
}

func threads(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	n, err := strconv.Atoi(regexp.MustCompile(`(?m)^Threads:\s+(\d+)`).FindStringSubmatch(string(text))[1])
	require.NoError(t, err)
	return n
}
