package checkpoint

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/cri/critest"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// soon is far below the beat of these tests.
const soon = 2 * time.Second

// hinted runs a Host whose beat is poll on a node that has a runtime and a static
// pod directory alone. wake is what its loop would get.
func hinted(t *testing.T, poll time.Duration) (h *Host, runtime *critest.Server, wake <-chan struct{}) {
	t.Helper()
	runtime = critest.Start(t)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "manifests"), 0o755))
	c := Defaults()
	c.Node, c.CRIEndpoint, c.Poll = "master-1", runtime.Endpoint(), poll
	c.StaticPodDir, c.KubeletDir, c.StateDir = filepath.Join(dir, "manifests"), filepath.Join(dir, "kubelet"), filepath.Join(dir, "state")
	c.Kubeconfig = filepath.Join(dir, "kubeconfig")
	h, err := NewHost(c, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	began, ended := make(chan (<-chan struct{})), make(chan error)
	go func() {
		ended <- h.Run(ctx, func(ctx context.Context, wake <-chan struct{}) error {
			began <- wake
			<-ctx.Done()
			return nil
		})
	}()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return h, runtime, <-began
}

// sees waits until the runtime's answer names so many pods, and the loop is woken for it.
func sees(t *testing.T, h *Host, wake <-chan struct{}, pods int) {
	t.Helper()
	for deadline := time.After(soon); len(h.Pods().Value) != pods; {
		select {
		case <-wake:
		case <-deadline:
			t.Fatalf("the loop is not told of %d pods", pods)
		}
	}
}

func run(runtime *critest.Server, id string) {
	runtime.Run(critest.Sandbox{ID: id, UID: id, Namespace: "kube-system", Ready: true})
}

func TestAnEventOfTheRuntimeIsAsked(t *testing.T) {
	h, runtime, wake := hinted(t, 10*time.Second)
	require.Eventually(t, func() bool { return runtime.Subscribers() == 1 && h.Pods().At != 0 }, soon, time.Millisecond)
	run(runtime, "one")
	runtime.Publish("/tasks/start")
	sees(t, h, wake, 1)

	// containerd tells of the end before it lists it.
	runtime.Publish("/tasks/delete")
	time.AfterFunc(50*time.Millisecond, func() { runtime.Remove("one") })
	sees(t, h, wake, 0)
}

func TestEventsComeBackWithTheRuntime(t *testing.T) {
	h, runtime, wake := hinted(t, 10*time.Second)
	require.Eventually(t, func() bool { return runtime.Subscribers() == 1 }, soon, time.Millisecond)
	runtime.Down()
	run(runtime, "one")
	runtime.Up()
	sees(t, h, wake, 1)
	require.Eventually(t, func() bool { return runtime.Subscribers() == 1 }, soon, time.Millisecond)
	run(runtime, "two")
	runtime.Publish("/tasks/start")
	sees(t, h, wake, 2)
}

func TestWithoutEventsTheBeatCounts(t *testing.T) {
	h, runtime, _ := hinted(t, 100*time.Millisecond)
	runtime.Down()
	runtime.UpWithoutEvents()
	run(runtime, "one")
	require.Eventually(t, func() bool { return len(h.Pods().Value) == 1 }, soon, time.Millisecond)
	runtime.Remove("one")
	require.Eventually(t, func() bool { return h.Pods().Err == nil && len(h.Pods().Value) == 0 }, soon, time.Millisecond)
}

func TestTheEndOfAProcessWakes(t *testing.T) {
	h, runtime, wake := hinted(t, 10*time.Second)
	run(runtime, "one")
	process := sleeper(t)
	h.Want(Wants{Processes: []lock.Process{process}})
	sees(t, h, wake, 1)
	require.NoError(t, exec.Command("kill", strconv.Itoa(process.PID)).Run())
	// The runtime learns of it later.
	time.AfterFunc(100*time.Millisecond, func() { runtime.Remove("one") })
	sees(t, h, wake, 0)
}

func TestProcessesThatNobodyWantsAreNotAwaited(t *testing.T) {
	h, _, _ := hinted(t, 10*time.Second)
	one, two := sleeper(t), sleeper(t)
	h.Want(Wants{Processes: []lock.Process{one, two, one}})
	h.Want(Wants{Processes: []lock.Process{two}})
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Len(t, h.awaited, 1)
	require.Contains(t, h.awaited, two)
}

func TestAManifestWakes(t *testing.T) {
	h, _, wake := hinted(t, 10*time.Second)
	for n, deadline := 0, time.After(soon); ; n++ { // the watch begins a moment later
		require.NoError(t, os.WriteFile(filepath.Join(h.config.StaticPodDir, strconv.Itoa(n)), nil, 0o600))
		select {
		case <-wake:
			return
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatal("not woken")
		}
	}
}

func sleeper(t *testing.T) lock.Process {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.lock")
	c := exec.Command("flock", "--no-fork", path, "sleep", "1000")
	require.NoError(t, c.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Wait() // by a signal
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill() // or it has ended
		<-ended
	})
	var state lock.State
	require.Eventually(t, func() bool {
		var err error
		state, err = lock.Inspect("/proc", path)
		return err == nil && state.Holder != nil
	}, soon, time.Millisecond)
	return *state.Holder
}

// Whose end the kernel would not tell of is looked at in each beat.
func TestAProcessThatCantBeAwaitedWakesAtEachBeat(t *testing.T) {
	const beat = 50 * time.Millisecond
	h, _, wake := hinted(t, beat)
	process := sleeper(t)
	process.PodUID = "another" // as one that has moved to another cgroup
	h.Want(Wants{Processes: []lock.Process{process}})
	const wakes = 20
	for begin, n := time.Now(), 0; n < wakes; n++ {
		select {
		case <-wake:
		case <-time.After(soon):
			t.Fatal("not woken")
		}
		require.Less(t, time.Since(begin), wakes*calmBeat(beat)/2, "the runtime wakes too, and not as often")
	}
	h.Want(Wants{})
	quiet := func() bool {
		select {
		case <-wake:
			return false
		case <-time.After(2 * beat):
			return true
		}
	}
	require.Eventually(t, quiet, soon, time.Millisecond, "nobody wants it any more")
}

// While all is calm the passes are rare, and anything that is not makes them come.
func TestCalmIsAProvedParentThatServes(t *testing.T) {
	n := newNode(t)
	n.save(parent(t, "parent"))
	n.locks("parent")
	n.lists(parent(t, "parent"))
	n.sources.ready["c-parent"] = said[bool]{value: true}
	l := n.loop(io.Discard)
	n.pass(l)
	require.False(t, l.calm, "its generation is not proved yet")
	for range 61 {
		n.pass(l)
	}
	n.pass(l)
	require.True(t, l.calm, "%+v", l.Status().Workloads)
	ready := n.sources.ready["c-parent"]
	n.sources.ready["c-parent"] = said[bool]{}
	n.pass(l)
	require.False(t, l.calm, "it is not ready")
	n.sources.ready["c-parent"] = ready
	n.pass(l)
	require.True(t, l.calm)
	n.locks("")
	n.pass(l)
	require.False(t, l.calm, "nobody serves")
}

func TestCalmBeat(t *testing.T) {
	for beat, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 600 * time.Millisecond, time.Second: 6 * time.Second, 10 * time.Second: 10 * time.Second,
	} {
		require.Equal(t, want, calmBeat(beat), beat)
	}
}
