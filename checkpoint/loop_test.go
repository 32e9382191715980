package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// still are Effects of which none is due.
type still struct{ t *testing.T }

func (s still) EndProcess(_ context.Context, p lock.Process, _ time.Duration) error {
	require.FailNow(s.t, "a process is ended", "%+v", p)
	return nil
}

func (s still) StopContainer(_ context.Context, id string, _ time.Duration) error {
	require.FailNow(s.t, "a container is stopped", id)
	return nil
}

// loop is a Loop on this node; none of these tests ends a process.
func (n *node) loop(log io.Writer) *Loop {
	return New(n.config, Parts{
		Clock: n.clock, Sources: n.sources, Effects: still{n.t}, Store: n.store, Manifests: n.manifests,
		Log: slog.New(slog.NewTextHandler(log, nil)),
	})
}

// pass is one pass, a second later.
func (n *node) pass(l *Loop) {
	n.clock.now += time.Second
	l.Pass(n.t.Context())
}

// activations are those whose files are on disk.
func (n *node) activations() []string {
	state, err := n.disk.Dir("/state")
	require.NoError(n.t, err)
	entries, err := state.ReadDir("activations")
	require.NoError(n.t, err)
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids
}

// What a manifest names may be mounted at any moment, also where the runtime shows
// no container of it yet.
func TestTidyLeavesWhatAManifestOrAContainerNames(t *testing.T) {
	n := protected(t)
	gone, running, active := n.activate(1), n.activate(1), n.activate(1)
	n.runs(checkpointPod(running, cri.Exited, 0))
	n.locks(active)
	n.sources.ready["c-"+active] = said[bool]{value: true}
	record, _ := n.store.Workload(n.key)
	record.State.Activation = nil // it is the manifest that counts
	_, err := n.store.SetState(n.key, record.State)
	require.NoError(t, err)
	require.Len(t, n.activations(), 3)

	l := n.loop(io.Discard)
	n.sources.pods.err = errors.New("the runtime is silent")
	n.pass(l)
	require.Contains(t, n.activations(), gone, "who is silent is no witness")
	n.sources.pods.err = nil
	for range 3 {
		n.pass(l)
	}
	require.ElementsMatch(t, []string{running, active}, n.activations())
	require.True(t, used(n.observe(), nil)[active], "where nothing else names it, the manifest does")
}

func TestWhatIsSaidIsSaidOnce(t *testing.T) {
	n := protected(t)
	var log bytes.Buffer
	l := n.loop(&log)
	for range 5 {
		n.pass(l)
	}
	quiet := log.Len()
	for range 5 {
		n.pass(l)
	}
	require.Equal(t, quiet, log.Len(), "a quiet pass is silent")
	n.sources.lockErr = errors.New("unreadable")
	for range 5 {
		n.pass(l)
	}
	require.Equal(t, 1, strings.Count(log.String(), "msg=frozen"), log.String())
}

func TestToldToStopNothingIsDone(t *testing.T) {
	n := protected(t)
	n.locks("")
	n.sources.pods.value = n.sources.pods.value[:1] // no parent
	n.lists()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	l := n.loop(io.Discard)
	n.clock.now += time.Second
	l.Pass(ctx)
	listing, err := n.manifests.List()
	require.NoError(t, err)
	require.Empty(t, listing.Ours)
	n.pass(l)
	listing, err = n.manifests.List()
	require.NoError(t, err)
	require.Len(t, listing.Ours, 1, "else it is")
}
