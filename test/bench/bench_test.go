//go:build e2e

package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var (
	runs        = flag.Int("bench.runs", 7, "how often each thing is measured")
	rest        = flag.Duration("bench.rest", 2*time.Minute, "how long the daemon is watched at rest")
	crowds      = flag.String("bench.pods", "10,110,500", "with how many pods on the node it rests, each at least the control plane's and two")
	everyStages = flag.Bool("bench.stages", false, "show the stages of every row, not of the missed ones alone")
)

// TestBench measures and prints. It fails only where something could not be measured.
func TestBench(t *testing.T) {
	require.Positive(t, *runs, "-bench.runs")
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, unix.SIGTERM)
	defer stop()
	disk := scratch(t)
	all := table{machine: machine(disk)}
	defer func() { all.print(os.Stdout, *everyStages) }()
	built := build(ctx, t, disk)
	for _, part := range []struct {
		name    string
		measure func(ctx context.Context, t *testing.T, p programs, add func(row))
	}{
		{"fsync", measureFsync},
		{"start", measureStart},
		{"lock", measureLock},
		{"death", measureDeath},
		{"snapshots", measureSnapshots},
		{"rest", measureRest},
		{"lab", measureLab},
		{"size", measureSize},
	} {
		if ctx.Err() != nil {
			return // interrupted: what there is, is printed
		}
		t.Run(part.name, func(t *testing.T) { part.measure(ctx, t, built, all.add) })
	}
}

// programs are what is measured, built as they are shipped.
type programs struct {
	disk            string // a folder on the disk that is measured
	podCheckpointer string
	lockExec        string
}

// scratch is a folder on a disk, beside the labs' own.
func scratch(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	cache = filepath.Join(cache, "pod-checkpointer")
	require.NoError(t, os.MkdirAll(cache, 0o755))
	dir, err := os.MkdirTemp(cache, "bench-") //nolint:usetesting // t.TempDir may lie in memory, where an fsync costs nothing
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func build(ctx context.Context, t *testing.T, dir string) programs {
	t.Helper()
	say("building")
	out := func(name, pkg string) string {
		path := filepath.Join(dir, name)
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", path, pkg)
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", text)
		return path
	}
	return programs{
		disk:            dir,
		podCheckpointer: out("pod-checkpointer", "./cmd/pod-checkpointer"),
		lockExec:        out("lock-exec", "./cmd/lock-exec"),
	}
}

// say shows progress.
func say(format string, args ...any) {
	fmt.Fprintln(os.Stderr, time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// await asks every half millisecond until done.
func await(ctx context.Context, limit time.Duration, what string, done func() bool) error {
	return awaitEvery(ctx, 500*time.Microsecond, limit, what, done)
}

func awaitEvery(ctx context.Context, interval, limit time.Duration, what string, done func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
	return nil
}

// pause returns after d, or with an error when ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
