//go:build e2e

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
)

// trusted is how long a parent serves before it is ended: it has then proved
// itself, or its end would be taken for a failed handoff.
const trusted = 3 * time.Second

// measureDeath kills the process of the API server's own pod where the rules say
// that its checkpoint starts at once.
func measureDeath(ctx context.Context, t *testing.T, p programs, add func(row)) {
	l := up(ctx, t, lab.Options{
		Name: "bench-death", LockExec: p.lockExec, PodCheckpointer: p.podCheckpointer,
		DaemonFlags: []string{"--handoff-settle=1s", "--known-good-after=1s"},
	})
	away := series{what: "death of the parent to manifest, kubelet away", unit: milliseconds}
	again := series{what: "death of the parent to manifest, second exit", unit: milliseconds}
	defer func() {
		add(row{series: away, limit: new(100.0)})
		add(row{series: again, limit: new(100.0)})
	}()
	for n := range *runs {
		require.NoError(t, atRest(ctx, l, time.Now()))
		require.NoError(t, deathAway(ctx, l, &away))
		require.NoError(t, atRest(ctx, l, time.Now()))
		require.NoError(t, death(ctx, l, &again))
		say("run %d of %d: kubelet away %.1f ms, second exit %.1f ms", n+1, *runs, away.values[n], again.values[n])
	}
}

// atRest waits until the control plane's own pods have served for a while.
func atRest(ctx context.Context, l *lab.Lab, after time.Time) error {
	if err := protected(ctx, l, after, controlPlane...); err != nil {
		return err
	}
	return pause(ctx, trusted)
}

// deathAway is death where the daemon knows that there is no kubelet, which comes
// back and finds the manifest. To the new kubelet nothing has crashed yet, so that
// it starts the parent without a delay.
func deathAway(ctx context.Context, l *lab.Lab, s *series) error {
	if err := l.Kill(lab.Kubelet); err != nil {
		return err
	}
	if err := told(ctx, l, time.Now(), "the kubelet is away", func(s checkpoint.Status) bool {
		return slices.ContainsFunc(s.Sources, func(source checkpoint.SourceStatus) bool {
			return source.Name == "kubelet" && !source.Known
		})
	}); err != nil {
		return err
	}
	return errors.Join(death(ctx, l, s), l.Start(ctx, lab.Kubelet))
}

// death kills the API server and times what the daemon does. The time runs from
// when the process is gone, as its pidfd tells, until the manifest and its
// directory are on stable storage, as the daemon tells; that the manifest has
// its name is seen from outside before.
func death(ctx context.Context, l *lab.Lab, s *series) error {
	locked, err := l.NodePath(lockFile)
	if err != nil {
		return err
	}
	watch, err := watchStart(l)
	if err != nil {
		return err
	}
	defer watch.Close()
	state, err := lock.Inspect("/proc", locked)
	if err != nil {
		return err
	}
	if state.Holder == nil {
		return errors.New("nobody holds the API server's lock")
	}
	begin, err := killed(state.Holder.PID)
	if err != nil {
		return err
	}
	seen, err := watch.manifest(ctx)
	if err != nil {
		return err
	}
	var log story
	var end time.Time
	err = awaitEvery(ctx, 10*time.Millisecond, 10*time.Second, "the daemon says that the manifest is durable", func() (written bool) {
		if log, err = daemonStory(l); err != nil {
			return false
		}
		end, written = log.first(begin, "manifest written")
		return written
	})
	if err != nil {
		return err
	}
	s.add(begin, end, inOrder(log.since(begin, "state Pending"), seen)...)
	return nil
}

// killed is when a process was gone after its SIGKILL.
func killed(pid int) (time.Time, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return time.Time{}, err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		return time.Time{}, err
	}
	for { // a signal to this process may interrupt it
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
		switch {
		case n == 1:
			return time.Now(), nil
		case err == nil:
			return time.Time{}, fmt.Errorf("process %d is still there 10 s after its SIGKILL", pid)
		case !errors.Is(err, unix.EINTR):
			return time.Time{}, err
		}
	}
}
