package kubelet

import (
	"context"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
)

var (
	static = PodName{"kube-system", "etcd-node-1"}
	parent = PodName{"kube-system", "kube-apiserver-x7k2p"}
)

func newClient(t *testing.T, f *fake) *Client {
	t.Helper()
	c, err := NewClient(f.dir, "Node-1")
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

func TestRegime(t *testing.T) {
	for _, tt := range []struct {
		name    string
		knows   []PodName
		podsAPI bool // is there
		synced  bool // what it says
		regime  Regime
		why     string
		asked   int // questions to the Pods API
	}{
		{"a pod from the API proves it, on every version",
			[]PodName{static, parent}, false, false,
			Synced, "podresources: lists kube-system/kube-apiserver-x7k2p, which is no static pod", 0},
		{"what podresources proves is not asked again",
			[]PodName{parent}, true, true,
			Synced, "podresources: lists", 0},
		{"static pods alone prove nothing",
			[]PodName{static}, false, false,
			Unknown, "podresources: lists static pods only; pods API at", 0},
		{"nor does the daemon's static copy",
			[]PodName{{"kube-system", "pod-checkpointer-static-node-1"}, static}, false, false,
			Unknown, "podresources: lists static pods only; pods API at", 0},
		{"no pod at all proves nothing",
			nil, false, false,
			Unknown, "no socket", 0},
		{"the Pods API answers",
			[]PodName{static}, true, true,
			Synced, "pods API: answers", 1},
		{"the Pods API waits for the API server",
			[]PodName{static}, true, false,
			Unsynced, "pods API: Kubelet is initializing", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			f.knows, f.synced = tt.knows, tt.synced
			f.podResources(t)
			if tt.podsAPI {
				f.podsAPI(t)
			}
			v, err := newClient(t, f).View(within(t, 5*time.Second))
			require.NoError(t, err)
			assert.Equal(t, tt.regime, v.Regime, v.Why)
			assert.Contains(t, v.Why, tt.why)
			assert.Equal(t, tt.knows, v.Knows)
			assert.Equal(t, os.Getpid(), v.PID)
			assert.Equal(t, tt.asked, f.asked)
		})
	}
}

func TestPodsAPIThatGivesNoAnswerIsUnknown(t *testing.T) {
	t.Run("another service", func(t *testing.T) {
		f := newFake(t)
		f.podResources(t)
		serve(t, filepath.Join(f.dir, "pods-api", "pods-api.sock"), func(*grpc.Server) {})
		v, err := newClient(t, f).View(within(t, 5*time.Second))
		require.NoError(t, err)
		assert.Equal(t, Unknown, v.Regime)
		assert.Contains(t, v.Why, "Unimplemented")
	})
	t.Run("left by a kubelet that died", func(t *testing.T) {
		f := newFake(t)
		f.podResources(t)
		path := filepath.Join(f.dir, "pods-api", "pods-api.sock")
		l, err := net.Listen("unix", path)
		require.NoError(t, err)
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		require.NoError(t, l.Close())
		v, err := newClient(t, f).View(within(t, 5*time.Second))
		require.NoError(t, err)
		assert.Equal(t, Unknown, v.Regime)
		assert.Contains(t, v.Why, "connection refused")
	})
	t.Run("hung", func(t *testing.T) {
		f := newFake(t)
		f.knows = []PodName{static}
		f.podResources(t)
		l, err := net.Listen("unix", filepath.Join(f.dir, "pods-api", "pods-api.sock"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		v, err := newClient(t, f).View(within(t, 100*time.Millisecond))
		require.NoError(t, err)
		assert.Equal(t, Unknown, v.Regime)
		assert.Contains(t, v.Why, "no answer")
		assert.Equal(t, []PodName{static}, v.Knows, "what the other socket said stands")
	})
}

func TestKubeletThatDoesNotAnswerIsAnError(t *testing.T) {
	f := newFake(t)
	c := newClient(t, f)
	_, err := c.View(within(t, 5*time.Second))
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "ask the kubelet at "+f.dir+"/pod-resources/kubelet.sock: no socket")

	f.podResources(t)
	f.set(func() { f.held = make(chan struct{}) })
	require.Eventually(t, func() bool {
		_, err = c.View(within(t, 50*time.Millisecond))
		return err != nil && strings.Contains(err.Error(), "no answer")
	}, 5*time.Second, 10*time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.View(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestKubeletThatComesBackIsSeenWithinABeat(t *testing.T) {
	f := newFake(t)
	c := newClient(t, f)
	stop := f.podResources(t)
	_, err := c.View(within(t, 5*time.Second))
	require.NoError(t, err)
	stop()
	fails := 0
	require.Eventually(t, func() bool {
		if _, err := c.View(within(t, time.Second)); err != nil {
			fails++
		}
		return fails == 8 // time for the backoff to grow
	}, 5*time.Second, 100*time.Millisecond)
	f.podResources(t)
	assert.Eventually(t, func() bool {
		_, err := c.View(within(t, time.Second))
		return err == nil
	}, time.Second, 10*time.Millisecond)
}

func TestLongListIsTaken(t *testing.T) {
	f := newFake(t)
	f.knows, f.padding = []PodName{parent}, strings.Repeat("x", 8<<20)
	f.podResources(t)
	_, err := newClient(t, f).View(within(t, 20*time.Second))
	require.NoError(t, err)
}

// One process answers the first question, another the second.
func TestAnswersOfTwoKubeletsAreNotJoined(t *testing.T) {
	f := newFake(t)
	f.podResources(t)
	successor := exec.Command(os.Args[0], "-test.run=^TestServePodsAPI$")
	successor.Env = append(os.Environ(), "SERVE_PODS_API="+f.dir)
	stdin, err := successor.StdinPipe()
	require.NoError(t, err)
	stdout, err := successor.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, successor.Start())
	t.Cleanup(func() {
		require.NoError(t, stdin.Close()) // tells it to end
		require.NoError(t, successor.Wait())
	})
	_, err = io.ReadFull(stdout, make([]byte, 1)) // it listens
	require.NoError(t, err)

	v, err := newClient(t, f).View(within(t, 5*time.Second))
	require.NoError(t, err)
	assert.Equal(t, Unknown, v.Regime)
	assert.Contains(t, v.Why, "the kubelet was restarted meanwhile")
	assert.Equal(t, os.Getpid(), v.PID)
}

func TestServePodsAPI(t *testing.T) {
	dir := os.Getenv("SERVE_PODS_API")
	if dir == "" {
		t.Skip("runs as the second kubelet of TestAnswersOfTwoKubeletsAreNotJoined")
	}
	(&fake{dir: dir}).podsAPI(t)
	_, err := os.Stdout.WriteString("\n")
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, os.Stdin)
	require.NoError(t, err)
}
