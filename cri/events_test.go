package cri_test

import (
	"context"
	"io/fs"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/cri/critest"
)

// listen subscribes, and returns how often it was woken and what ended it.
func listen(t *testing.T, server *critest.Server, c *cri.Client) (woken *atomic.Int64, ended <-chan error, stop func()) {
	t.Helper()
	woken = &atomic.Int64{}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- c.Events(ctx, func() { woken.Add(1) }) }()
	require.Eventually(t, func() bool { return server.Subscribers() == 1 }, 5*time.Second, time.Millisecond)
	return woken, done, cancel
}

func TestEventsWakeForContainersThatBeginOrEnd(t *testing.T) {
	server := critest.Start(t)
	woken, ended, stop := listen(t, server, newClient(t, server.Endpoint()))
	// An exec probe makes these three each time that it is asked.
	for _, topic := range []string{"/tasks/exec-added", "/tasks/exec-started", "/tasks/exit"} {
		server.Publish(topic)
	}
	for n, topic := range []string{"/tasks/create", "/tasks/start", "/tasks/oom", "/tasks/delete"} {
		server.Publish(topic)
		require.Eventually(t, func() bool { return woken.Load() >= int64(n+1) }, 5*time.Second, time.Millisecond, topic)
	}
	assert.EqualValues(t, 4, woken.Load(), "no exec probe wakes")
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func TestEventsEndWithTheRuntime(t *testing.T) {
	server := critest.Start(t)
	c := newClient(t, server.Endpoint())
	_, ended, _ := listen(t, server, c)
	server.Down()
	err := <-ended
	require.ErrorContains(t, err, "runtime events at unix:///")
	require.NotErrorIs(t, err, cri.ErrNoEvents)
	err = c.Events(within(t, 5*time.Second), func() {})
	require.ErrorIs(t, err, fs.ErrNotExist, "no socket")

	server.Up()
	require.Eventually(t, func() bool {
		_, err := c.Pods(within(t, time.Second))
		return err == nil
	}, 5*time.Second, 10*time.Millisecond)
	woken, _, _ := listen(t, server, c)
	server.Publish("/tasks/start")
	require.Eventually(t, func() bool { return woken.Load() == 1 }, 5*time.Second, time.Millisecond)
}

func TestRuntimeWithoutEventsIsTold(t *testing.T) {
	server := critest.Start(t)
	server.Down()
	server.UpWithoutEvents()
	c := newClient(t, server.Endpoint())
	err := c.Events(within(t, 5*time.Second), func() {})
	require.ErrorIs(t, err, cri.ErrNoEvents)
	require.NotErrorIs(t, err, cri.ErrNoRuntimeV1)
	_, err = c.Pods(within(t, 5*time.Second))
	require.NoError(t, err)
}

func TestPodsOfNamespaces(t *testing.T) {
	server := critest.Start(t)
	for _, namespace := range []string{"web", "kube-system", "etcd"} {
		server.Run(critest.Sandbox{ID: "s-" + namespace, Namespace: namespace, Name: "p", UID: "u-" + namespace},
			critest.Container{ID: "c-" + namespace, Name: "c"})
	}
	c := newClient(t, server.Endpoint())
	names := func(namespaces ...string) (names []string) {
		pods, err := c.Pods(within(t, 5*time.Second), namespaces...)
		require.NoError(t, err)
		for _, p := range pods {
			require.Len(t, p.Containers, 1)
			names = append(names, p.Namespace)
		}
		return names
	}
	assert.Equal(t, []string{"etcd", "kube-system", "web"}, names())
	assert.Equal(t, []string{"kube-system"}, names("kube-system"))
	assert.Equal(t, []string{"etcd", "web"}, names("web", "etcd", "web"))
	assert.Empty(t, names("nobody"))
}
