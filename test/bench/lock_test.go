//go:build e2e

package bench

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// measureLock kills a holder and sees when the waiter becomes its program.
func measureLock(ctx context.Context, t *testing.T, p programs, add func(row)) {
	s := series{what: "lock: death of the holder to the waiter's exec", unit: milliseconds}
	for n := range *runs {
		path := filepath.Join(t.TempDir(), strconv.Itoa(n)+".lock")
		took := inherit(ctx, t, p, path)
		s.values = append(s.values, milliseconds.duration(took))
	}
	say("lock: %.2f ms", median(s.values))
	add(row{series: s, limit: new(2.0)})
}

// inherit is the time from the SIGKILL of a holder to the exec of its heir, which
// is when the heir's executable is no longer lock-exec. Its link is read some ten
// times in a millisecond: to read it all the time would take a core from the heir.
func inherit(ctx context.Context, t *testing.T, p programs, path string) time.Duration {
	t.Helper()
	run := func() *exec.Cmd {
		cmd := exec.CommandContext(ctx, p.lockExec, "--lock", path, "--", "sleep", "60")
		cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"} // a container's; ours may be long
		require.NoError(t, cmd.Start())
		return cmd
	}
	executable := func(cmd *exec.Cmd) string {
		to, _ := os.Readlink("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/exe") // "" in the midst of exec
		return to
	}
	holder := run()
	require.NoError(t, await(ctx, 10*time.Second, "the holder runs", func() bool {
		return filepath.Base(executable(holder)) == "sleep" // or its own exec would be in what is measured
	}))
	waiter := run()
	require.NoError(t, await(ctx, 10*time.Second, "the waiter waits", func() bool {
		state, err := lock.Inspect("/proc", path)
		return err == nil && len(state.Waiters) == 1
	}))
	waiting := executable(waiter)
	begin := time.Now()
	require.NoError(t, holder.Process.Kill())
	for now := waiting; (now == waiting || now == "") && ctx.Err() == nil; now = executable(waiter) {
		time.Sleep(20 * time.Microsecond)
	}
	took := time.Since(begin)
	require.Equal(t, "sleep", filepath.Base(executable(waiter)), "the heir runs")
	require.NoError(t, waiter.Process.Kill())
	_, _ = holder.Wait(), waiter.Wait() // killed: an error, as it should be
	return took
}
