package cri_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/cri/critest"
)

func TestImage(t *testing.T) {
	server := critest.Start(t)
	server.Images("registry/there:1")
	c := newClient(t, server.Endpoint())
	image, there, err := c.Image(within(t, 5*time.Second), "registry/there:1")
	require.NoError(t, err)
	assert.True(t, there)
	assert.Equal(t, cri.Image{ID: "sha256:registry/there:1"}, image)
	_, there, err = c.Image(within(t, 5*time.Second), "registry/away:1")
	require.NoError(t, err)
	assert.False(t, there)
	server.Fail(codes.Unavailable)
	_, _, err = c.Image(within(t, 5*time.Second), "registry/there:1")
	assert.ErrorContains(t, err, "look up image registry/there:1 at unix:///")
}

func TestPinIsSeenAndTakenBackAlone(t *testing.T) {
	const id, other = "sha256:registry/ours:1", "sha256:registry/theirs:1"
	server := critest.Start(t)
	server.Images("registry/ours:1", "registry/theirs:1")
	server.Label(other, "io.cri-containerd.pinned", "pinned")
	before := server.Labels(id)
	c := newClient(t, server.Endpoint())
	ctx := within(t, 5*time.Second)

	require.NoError(t, c.Pin(ctx, id))
	require.NoError(t, c.Pin(ctx, id))
	image, _, err := c.Image(ctx, "registry/ours:1")
	require.NoError(t, err)
	assert.True(t, image.Pinned)
	assert.Equal(t, "managed", server.Labels(id)["io.cri-containerd.image"], "the labels of others stay")
	pins, err := c.Pins(ctx)
	require.NoError(t, err)
	assert.Equal(t, []string{id}, pins, "the one that somebody else has pinned is none of ours")

	require.NoError(t, c.Unpin(ctx, id))
	assert.Equal(t, before, server.Labels(id))
	pins, err = c.Pins(ctx)
	require.NoError(t, err)
	assert.Empty(t, pins)

	require.NoError(t, c.Unpin(ctx, "sha256:gone"))
	assert.ErrorContains(t, c.Pin(ctx, "sha256:gone"), "pin image sha256:gone at unix:///")
}

func TestRuntimeWithoutPinsIsTold(t *testing.T) {
	server := critest.Start(t)
	server.Down()
	server.UpWithoutEvents()
	c := newClient(t, server.Endpoint())
	ctx := within(t, 5*time.Second)
	require.ErrorIs(t, c.Pin(ctx, "x"), cri.ErrNoPins)
	require.ErrorIs(t, c.Unpin(ctx, "x"), cri.ErrNoPins)
	_, err := c.Pins(ctx)
	require.ErrorIs(t, err, cri.ErrNoPins)
	require.NotErrorIs(t, err, cri.ErrNoRuntimeV1)
}
