package cri_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/cri/critest"
)

func TestEntrypointIsTheImagesOwn(t *testing.T) {
	s := critest.Start(t)
	s.Images("a:1", "b:1")
	// As containerd words it, and CRI-O but for the chain.
	s.Info("a:1", `{"chainID":"sha256:0","imageSpec":{"created":"2026-01-01T00:00:00Z","architecture":"amd64","os":"linux",`+
		`"config":{"Env":["PATH=/bin"],"Entrypoint":["/a","--flag"],"Cmd":["run"]},"rootfs":{"type":"layers","diff_ids":null}}}`)
	c := newClient(t, s.Endpoint())
	want := &cri.Entrypoint{Entrypoint: []string{"/a", "--flag"}, Command: []string{"run"}}
	for _, ref := range []string{"a:1", "sha256:a:1"} {
		got, err := c.Entrypoint(t.Context(), ref)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}

	s.Info("a:1", `{"labels":null,"imageSpec":{"config":{}}}`)
	got, err := c.Entrypoint(t.Context(), "a:1")
	require.NoError(t, err)
	require.Equal(t, &cri.Entrypoint{}, got, "it has none, and says so")

	for _, info := range []string{"", "{", `{"imageSpec":null}`, `{"imageSpec":7}`, "failed to marshal"} {
		s.Info("b:1", info)
		got, err := c.Entrypoint(t.Context(), "b:1")
		require.NoError(t, err)
		require.Nil(t, got, "not told: %q", info)
	}
}

func TestEntrypointOfNoImageIsNotKnown(t *testing.T) {
	s := critest.Start(t)
	c := newClient(t, s.Endpoint())
	_, err := c.Entrypoint(t.Context(), "a:1")
	require.ErrorContains(t, err, "look up entrypoint of image a:1 at unix://")
	require.ErrorContains(t, err, "the runtime does not have it")
	s.Fail(codes.Unavailable)
	_, err = c.Entrypoint(t.Context(), "a:1")
	require.Error(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Entrypoint(ctx, "a:1")
	require.ErrorIs(t, err, context.Canceled)
}
