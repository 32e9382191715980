package checkpoint

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/cri/critest"
)

func TestImagesThatAStartWouldMissAreNamed(t *testing.T) {
	const image = "images.example/kube-apiserver:v1"
	n := protected(t)
	for _, tt := range []struct {
		image Image
		want  string // "": no finding
	}{
		{Image{Present: true, Asks: Known(false)}, ""},
		{Image{}, "ImageMissing: " + image + " is not on this node, and generation 1 starts from it"},
		{Image{Present: true, Asks: Known(true)}, "PullSecrets: by the kubelet's record the image " + image},
		{Image{Present: true, Asks: Unknown[bool]("torn")}, "PullSecrets: nobody knows whether the kubelet starts a static pod from the image " + image + " without asking a registry: torn"},
	} {
		n.sources.images.value = map[string]Image{image: tt.image}
		_, d := n.look()
		if tt.want == "" {
			require.Empty(t, d.findings)
			continue
		}
		require.Len(t, d.findings, 1)
		require.Contains(t, d.findings[0], tt.want)
	}
	n.sources.images.value = map[string]Image{image: {Unclear: "no such name"}}
	w, d := n.look()
	require.Equal(t, []string{"ImageMissing: nobody knows whether the image is on this node from which generation 1 starts: no such name"}, d.findings)
	require.Empty(t, w.Absent)

	n.sources.images.silent = true
	_, d = n.look()
	require.Empty(t, d.findings, "who was not asked says nothing")
}

// imageHost is a Host with a runtime and a kubelet's directory, and nothing else.
func imageHost(t *testing.T, server *critest.Server) *Host {
	t.Helper()
	runtime, err := cri.New(server.Endpoint())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, runtime.Close()) })
	h := &Host{runtime: runtime, pins: pins{runtime: runtime, log: slog.New(slog.DiscardHandler)}}
	h.config.KubeletDir = t.TempDir()
	return h
}

func (h *Host) want(images ...string) { h.wants.Store(&Wants{Images: images}) }

func TestImagesAreAskedOfRuntimeAndKubelet(t *testing.T) {
	server := critest.Start(t)
	server.Images("r.example/open:1", "r.example/closed:1", "r.example/torn:1")
	h := imageHost(t, server)
	dir := filepath.Join(h.config.KubeletDir, "image_manager", "pulled")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	for image, record := range map[string]string{
		"r.example/closed:1": `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"sha256:r.example/closed:1"}`,
		"r.example/torn:1":   "{",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("sha256-%x", sha256.Sum256([]byte("sha256:"+image)))), []byte(record), 0o600))
	}
	h.want("r.example/open:1", "r.example/away:1")
	h.wants.Load().CopyImages = []string{"r.example/closed:1", "r.example/torn:1"}
	seen, err := h.askImages(t.Context())
	require.NoError(t, err)
	require.Len(t, seen, 4)
	assert.Equal(t, Known(false), seen["r.example/open:1"].Asks)
	assert.Equal(t, Image{}, seen["r.example/away:1"])
	assert.Equal(t, Known(true), seen["r.example/closed:1"].Asks)
	assert.Contains(t, seen["r.example/torn:1"].Asks.Why(), "the kubelet's pull record of r.example/torn:1")
	assert.NotContains(t, server.Labels("sha256:r.example/closed:1"), "io.cri-containerd.pinned", "the copy runs, and who runs keeps its image")
}

func TestImagesOfGenerationsArePinnedAndLetGo(t *testing.T) {
	server := critest.Start(t)
	server.Images("a:1", "b:1", "theirs:1")
	server.Label("sha256:theirs:1", "io.cri-containerd.pinned", "pinned")
	h := imageHost(t, server)
	pinned := func(image string) bool {
		return server.Labels("sha256:" + image)["io.cri-containerd.pinned"] == "pinned"
	}
	ask := func() {
		t.Helper()
		_, err := h.askImages(t.Context())
		require.NoError(t, err)
	}
	h.want("a:1", "theirs:1", "away:1")
	ask()
	assert.True(t, pinned("a:1"))
	assert.False(t, pinned("b:1"))

	ask() // which sees the pins
	calls := server.PinCalls()
	for range 3 {
		ask()
	}
	assert.Equal(t, calls, server.PinCalls(), "at rest nothing is asked")

	h.want("b:1", "theirs:1")
	ask()
	assert.False(t, pinned("a:1"), "no generation names it any more")
	assert.True(t, pinned("b:1"))
	h = imageHost(t, server) // of the next daemon
	h.wants.Store(noWants)
	ask()
	assert.True(t, pinned("b:1"), "no pass has said yet what is wanted")
	h.want()
	ask()
	assert.False(t, pinned("b:1"))
	assert.True(t, pinned("theirs:1"), "it was somebody else who pinned it")
}

// Any text may stand for an image in a pod, and CRI does not say what a runtime makes of it.
func TestAnImageThatTheRuntimeDoesNotKnowHowToNameHidesNoOther(t *testing.T) {
	server := critest.Start(t)
	server.Images("a:1", "b:1")
	h := imageHost(t, server)
	h.want("a:1", "b:1")
	_, err := h.askImages(t.Context())
	require.NoError(t, err)

	server.Refuse("B@!")
	h.want("a:1", "B@!", "a:1")
	seen, err := h.askImages(t.Context())
	require.NoError(t, err)
	assert.True(t, seen["a:1"].Present)
	assert.Contains(t, seen["B@!"].Unclear, "look up image B@!")
	assert.Equal(t, "pinned", server.Labels("sha256:b:1")["io.cri-containerd.pinned"], "it may be the one")

	h.want("B@!")
	_, err = h.askImages(t.Context())
	require.ErrorContains(t, err, "look up image B@!", "of which nothing is known at all")
}

func TestPinsThatFailAreTriedAgainAndOthersAreNot(t *testing.T) {
	server := critest.Start(t)
	server.Images("a:1")
	h := imageHost(t, server)
	var log strings.Builder
	h.pins.log = slog.New(slog.NewTextHandler(&log, nil))
	seen := map[string]Image{"a:1": {Present: true, id: "sha256:a:1"}}
	ctx := t.Context()

	server.Fail(codes.Internal)
	h.pins.keep(ctx, []string{"a:1"}, seen)
	assert.Contains(t, log.String(), "pin images")
	server.Fail(codes.OK)
	h.pins.keep(ctx, []string{"a:1"}, seen)
	assert.Equal(t, "pinned", server.Labels("sha256:a:1")["io.cri-containerd.pinned"])
	calls := server.PinCalls()
	h.pins.keep(ctx, []string{"a:1"}, seen) // an older containerd never calls it pinned
	assert.Equal(t, calls, server.PinCalls())

	log.Reset()
	server.Down()
	server.UpWithoutEvents()
	h = imageHost(t, server)
	h.pins.log = slog.New(slog.NewTextHandler(&log, nil))
	h.pins.keep(ctx, []string{"a:1"}, seen)
	assert.Empty(t, log.String())
	assert.NotEmpty(t, h.pins.last)
}

func TestDryRunPinsNothing(t *testing.T) {
	server := critest.Start(t)
	server.Images("a:1")
	h := imageHost(t, server)
	h.config.DryRun = true
	h.want("a:1")
	_, err := h.askImages(t.Context())
	require.NoError(t, err)
	assert.Zero(t, server.PinCalls())
}
