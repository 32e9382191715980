//go:build e2e

package bench

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// measureLock kills a holder and asks the program behind the waiter when it began.
func measureLock(ctx context.Context, t *testing.T, p programs, add func(row)) {
	s := series{what: "lock: death of the holder to the waiter's exec", unit: milliseconds}
	for n := range *runs {
		path := filepath.Join(t.TempDir(), strconv.Itoa(n)+".lock")
		took := inherit(ctx, t, p, path)
		s.values = append(s.values, milliseconds.duration(took))
	}
	say("lock: %.2f ms", median(s.values))
	add(row{series: s, limit: 2})
}

// inherit is the time from the SIGKILL of a holder to the clock of its heir.
func inherit(ctx context.Context, t *testing.T, p programs, path string) time.Duration {
	t.Helper()
	holder := exec.CommandContext(ctx, p.lockExec, "--lock", path, "--", "sleep", "60")
	require.NoError(t, holder.Start())
	require.NoError(t, await(ctx, 10*time.Second, "the holder runs", func() bool {
		state, err := lock.Inspect("/proc", path)
		// Not lock-exec any more, whose exec would be in what is measured.
		return err == nil && state.Holder != nil && strings.HasSuffix(field("/proc/"+strconv.Itoa(holder.Process.Pid)+"/status", "Name"), "sleep")
	}))
	var printed strings.Builder
	waiter := exec.CommandContext(ctx, p.lockExec, "--lock", path, "--", p.stamp)
	waiter.Stdout = &printed
	require.NoError(t, waiter.Start())
	require.NoError(t, await(ctx, 10*time.Second, "the waiter waits", func() bool {
		state, err := lock.Inspect("/proc", path)
		return err == nil && len(state.Waiters) == 1
	}))
	begin := monotonic(t)
	require.NoError(t, holder.Process.Kill())
	require.NoError(t, waiter.Wait())
	_ = holder.Wait() // killed: an error, as it should be
	end, err := strconv.ParseInt(strings.TrimSpace(printed.String()), 10, 64)
	require.NoError(t, err)
	return time.Duration(end) - begin
}

func monotonic(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return time.Duration(now.Nano())
}
