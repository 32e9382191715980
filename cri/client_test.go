package cri_test

import (
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/cri/critest"
)

func newClient(t *testing.T, endpoint string) *cri.Client {
	t.Helper()
	c, err := cri.New(endpoint)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestEndpointsAreUnixSockets(t *testing.T) {
	for _, good := range []string{"unix:///run/containerd/containerd.sock", "/run/crio/crio.sock", "unix:///with space/%41?#.sock"} {
		c, err := cri.New(good)
		require.NoError(t, err, good)
		require.NoError(t, c.Close())
	}
	for _, bad := range []string{"", "containerd.sock", "unix://run/containerd.sock", "unix:/run/x.sock", "tcp://127.0.0.1:1", "npipe://x", "https:///x"} {
		_, err := cri.New(bad)
		assert.ErrorContains(t, err, "want unix:///path/of/socket or an absolute path", bad)
		assert.ErrorContains(t, err, `"`+bad+`"`, bad)
	}
}

func TestBarePathIsAnEndpoint(t *testing.T) {
	server := critest.Start(t)
	c := newClient(t, strings.TrimPrefix(server.Endpoint(), "unix://"))
	pods, err := c.Pods(within(t, 5*time.Second))
	require.NoError(t, err)
	assert.Empty(t, pods)
}

func TestAbsentSocketIsNamed(t *testing.T) {
	c := newClient(t, "/nowhere/cri.sock")
	_, err := c.Pods(within(t, 5*time.Second))
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "list containers at /nowhere/cri.sock: no socket: the runtime is not up")
}

func TestRuntimeThatComesBackIsSeenWithinABeat(t *testing.T) {
	server := critest.Start(t)
	c := newClient(t, server.Endpoint())
	for range 2 {
		server.Down()
		var failed int
		require.Eventually(t, func() bool {
			if _, err := c.Pods(within(t, time.Second)); err != nil {
				failed++
			}
			return failed == 8 // time for the backoff to grow
		}, 5*time.Second, 100*time.Millisecond)
		server.Up()
		assert.Eventually(t, func() bool {
			_, err := c.Pods(within(t, time.Second))
			return err == nil
		}, time.Second, 10*time.Millisecond)
	}
}

func TestEndpointWithoutRuntimeV1SaysWhatToDo(t *testing.T) {
	server := critest.Start(t)
	server.Down()
	server.UpWithoutV1()
	c := newClient(t, server.Endpoint())
	_, err := c.Pods(within(t, 5*time.Second))
	require.ErrorIs(t, err, cri.ErrNoRuntimeV1)
	assert.ErrorContains(t, err, server.Endpoint())
	assert.ErrorContains(t, err, "containerd 1.6 or later")
	_, _, err = c.Image(within(t, 5*time.Second), "registry/x:1")
	require.ErrorIs(t, err, cri.ErrNoRuntimeV1)
}

func TestHungRuntimeHasOneCallInFlight(t *testing.T) {
	server := critest.Start(t)
	c := newClient(t, server.Endpoint())
	server.Hang()
	for range 2 { // beats
		var askers sync.WaitGroup
		ctx := within(t, 50*time.Millisecond)
		for range 10 {
			askers.Go(func() {
				_, err := c.Pods(ctx)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				_, _, err = c.Image(ctx, "registry/x:1")
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		askers.Wait()
		require.Eventually(t, func() bool { return server.Calls() == 0 }, 5*time.Second, time.Millisecond)
	}
	assert.Equal(t, 1, server.MostCalls())

	server.Resume()
	_, err := c.Pods(within(t, 5*time.Second))
	require.NoError(t, err)
}

func TestStopDoesNotHideTheNode(t *testing.T) {
	server := critest.Start(t)
	c := newClient(t, server.Endpoint())
	server.Hang()
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- c.StopContainer(ctx, "x", time.Hour) }()
	require.Eventually(t, func() bool { return server.Calls() == 1 }, 5*time.Second, time.Millisecond)
	_, err := c.Pods(within(t, 20*time.Millisecond))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, 2, server.MostCalls(), "the question must not wait for the order")
	cancel()
	require.ErrorIs(t, <-stopped, context.Canceled)
}

func TestSocketThatNobodyServesEndsWithTheDeadline(t *testing.T) {
	path := filepath.Join(shortDir(t), "mute.sock")
	l, err := net.Listen("unix", path) // the kernel accepts, nobody reads
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	c := newClient(t, path)
	begin := time.Now()
	_, err = c.Pods(within(t, 100*time.Millisecond))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "list containers at "+path+": no answer")
	assert.Less(t, time.Since(begin), time.Second)
}

func TestErrorsKeepTheirCode(t *testing.T) {
	server := critest.Start(t)
	c := newClient(t, server.Endpoint())
	server.Fail(codes.Internal)
	_, err := c.Pods(within(t, 5*time.Second))
	assert.Equal(t, codes.Internal, status.Code(err))
	assert.ErrorContains(t, err, "list containers at unix:///")
	server.Fail(codes.OK)
	_, err = c.Pods(within(t, 5*time.Second))
	require.NoError(t, err)
}

func TestAnswersUpTo16MiBAreTaken(t *testing.T) {
	server := critest.Start(t)
	c := newClient(t, server.Endpoint())
	big := map[string]string{"a": strings.Repeat("x", 15<<20)}
	server.Run(critest.Sandbox{ID: "s", UID: "u", Annotations: big})
	pods, err := c.Pods(within(t, 20*time.Second))
	require.NoError(t, err)
	require.Len(t, pods, 1)

	big["a"] += strings.Repeat("x", 5<<20)
	_, err = c.Pods(within(t, 20*time.Second))
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.ErrorContains(t, err, "list pod sandboxes at unix:///")
	assert.ErrorContains(t, err, "larger than max")
}

func TestStop(t *testing.T) {
	server := critest.Start(t)
	server.Run(critest.Sandbox{ID: "s1", UID: "u", Ready: true},
		critest.Container{ID: "c1", Name: "a", State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		critest.Container{ID: "c2", Name: "b", State: runtimeapi.ContainerState_CONTAINER_RUNNING})
	c := newClient(t, server.Endpoint())
	ctx := within(t, 5*time.Second)

	require.NoError(t, c.StopContainer(ctx, "c1", 1500*time.Millisecond))
	require.NoError(t, c.StopContainer(ctx, "c2", 0))
	require.NoError(t, c.StopSandbox(ctx, "s1"))
	require.NoError(t, c.StopContainer(ctx, "gone", time.Second), "what is gone is stopped")
	require.NoError(t, c.StopSandbox(ctx, "gone"), "what is gone is stopped")
	assert.Equal(t, []critest.Stop{{ID: "c1", Grace: 2 * time.Second}, {ID: "c2"}, {ID: "s1"}}, server.Stops())

	pods, err := c.Pods(ctx)
	require.NoError(t, err)
	require.Len(t, pods, 1)
	assert.False(t, pods[0].Ready())
	a, _ := pods[0].Container("a")
	assert.Equal(t, cri.Exited, a.State)

	server.Fail(codes.Unknown)
	assert.ErrorContains(t, c.StopContainer(ctx, "c1", 0), "stop container c1 at unix:///")
	assert.ErrorContains(t, c.StopSandbox(ctx, "s1"), "stop pod sandbox s1 at unix:///")
}

// shortDir is a temporary directory.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri") //nolint:usetesting // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}
