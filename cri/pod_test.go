package cri_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/cri/critest"
)

const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
	lost    = runtimeapi.ContainerState_CONTAINER_UNKNOWN
)

func at(second int64) time.Time { return time.Unix(second, 0) }

func list(t *testing.T, c *cri.Client) []cri.Pod {
	t.Helper()
	pods, err := c.Pods(within(t, 5*time.Second))
	require.NoError(t, err)
	return pods
}

func TestPodIsWhatItsSandboxesAndContainersSay(t *testing.T) {
	server := critest.Start(t)
	server.Run(critest.Sandbox{
		ID: "s", Namespace: "kube-system", Name: "api-x", UID: "u", Attempt: 3, Ready: true, CreatedAt: at(10),
		Labels:      map[string]string{"l": "1"},
		Annotations: map[string]string{"kubernetes.io/config.source": "api", "a": "2"},
	}, critest.Container{
		ID: "c", Name: "kube-apiserver", Image: "registry/api:1", ImageRef: "sha256:1", Attempt: 7, State: running, CreatedAt: at(11),
	})
	want := cri.Container{
		ID: "c", Name: "kube-apiserver", Image: "registry/api:1", ImageRef: "sha256:1", Attempt: 7, State: cri.Running, CreatedAt: at(11),
	}
	pods := list(t, newClient(t, server.Endpoint()))
	require.Equal(t, []cri.Pod{{
		Namespace: "kube-system", Name: "api-x", UID: "u", Source: "api",
		Sandboxes: []cri.Sandbox{{
			ID: "s", Attempt: 3, Ready: true, CreatedAt: at(10),
			Labels:      map[string]string{"l": "1"},
			Annotations: map[string]string{"kubernetes.io/config.source": "api", "a": "2"},
		}},
		Containers: []cri.Container{want},
	}}, pods)

	got, ok := pods[0].Container("kube-apiserver")
	assert.True(t, ok)
	assert.Equal(t, want, got)
	_, ok = pods[0].Container("other")
	assert.False(t, ok)
	assert.Equal(t, "2", pods[0].Annotation("a"))
	assert.Empty(t, pods[0].Annotation("none"))
}

func TestZeroPodIsNotReady(t *testing.T) {
	assert.False(t, cri.Pod{}.Ready())
	assert.Empty(t, cri.Pod{}.Annotation("a"))
}

func TestStatesAreThoseOfTheRuntime(t *testing.T) {
	server := critest.Start(t)
	server.Run(critest.Sandbox{ID: "s", UID: "u", Ready: true},
		critest.Container{ID: "1", Name: "created", State: created},
		critest.Container{ID: "2", Name: "running", State: running},
		critest.Container{ID: "3", Name: "exited", State: exited},
		critest.Container{ID: "4", Name: "unknown", State: lost},
		critest.Container{ID: "5", Name: "of a later version", State: 99})
	pods := list(t, newClient(t, server.Endpoint()))
	require.Len(t, pods, 1)
	for name, want := range map[string]cri.State{
		"created": cri.Created, "running": cri.Running, "exited": cri.Exited,
		"unknown": cri.Unknown, "of a later version": cri.Unknown,
	} {
		c, ok := pods[0].Container(name)
		require.True(t, ok, name)
		assert.Equal(t, want, c.State, name)
	}
	assert.Equal(t, cri.Unknown, cri.State(0))
	assert.Equal(t, "exited", cri.Exited.String())
}

// After a reboot the runtime lists what it had before.
func TestNewestSandboxSpeaksForThePod(t *testing.T) {
	for _, tt := range []struct {
		name      string
		sandboxes []critest.Sandbox
		newest    string
		ready     bool
	}{
		{"ready after two of earlier boots", []critest.Sandbox{
			{ID: "s0", Attempt: 0, CreatedAt: at(1)},
			{ID: "s2", Attempt: 2, CreatedAt: at(3), Ready: true},
			{ID: "s1", Attempt: 1, CreatedAt: at(2)},
		}, "s2", true},
		{"none is up since the reboot", []critest.Sandbox{
			{ID: "s0", Attempt: 0, CreatedAt: at(1)},
			{ID: "s1", Attempt: 1, CreatedAt: at(2)},
			{ID: "s2", Attempt: 2, CreatedAt: at(3)},
		}, "s2", false},
		{"an old one that is still ready is not the pod", []critest.Sandbox{
			{ID: "s0", Attempt: 0, CreatedAt: at(1), Ready: true},
			{ID: "s1", Attempt: 1, CreatedAt: at(2)},
			{ID: "s2", Attempt: 2, CreatedAt: at(3)},
		}, "s2", false},
		{"the attempt counts before a clock that went back", []critest.Sandbox{
			{ID: "s0", Attempt: 0, CreatedAt: at(100)},
			{ID: "s1", Attempt: 1, CreatedAt: at(5), Ready: true},
		}, "s1", true},
		{"equal attempts, later creation", []critest.Sandbox{
			{ID: "s1", CreatedAt: at(5), Ready: true},
			{ID: "s0", CreatedAt: at(1)},
		}, "s1", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := critest.Start(t)
			for _, s := range tt.sandboxes {
				s.Namespace, s.Name, s.UID = "kube-system", "api-x", "u"
				s.Annotations = map[string]string{"id": s.ID, "kubernetes.io/config.source": s.ID}
				server.Run(s)
			}
			pods := list(t, newClient(t, server.Endpoint()))
			require.Len(t, pods, 1)
			require.Len(t, pods[0].Sandboxes, len(tt.sandboxes))
			assert.Equal(t, tt.newest, pods[0].Sandboxes[0].ID)
			assert.Equal(t, tt.newest, pods[0].Annotation("id"))
			assert.Equal(t, tt.newest, pods[0].Source)
			assert.Equal(t, tt.ready, pods[0].Ready())
		})
	}
}

func TestNewestContainerOfEachNameCounts(t *testing.T) {
	server := critest.Start(t)
	server.Run(critest.Sandbox{ID: "old", UID: "u", Attempt: 0, CreatedAt: at(1)},
		critest.Container{ID: "a-old", Name: "a", Attempt: 9, State: exited, CreatedAt: at(2)},
		critest.Container{ID: "b-old", Name: "b", Attempt: 0, State: exited, CreatedAt: at(2)})
	server.Run(critest.Sandbox{ID: "new", UID: "u", Attempt: 1, Ready: true, CreatedAt: at(10)},
		critest.Container{ID: "a0", Name: "a", Attempt: 0, State: exited, CreatedAt: at(11)},
		critest.Container{ID: "a1", Name: "a", Attempt: 1, State: running, CreatedAt: at(12)},
		critest.Container{ID: "c-late", Name: "c", State: running, CreatedAt: at(14)},
		critest.Container{ID: "c-early", Name: "c", State: exited, CreatedAt: at(13)})
	c := newClient(t, server.Endpoint())
	pods := list(t, c)
	require.Len(t, pods, 1)
	var ids []string
	for _, c := range pods[0].Containers {
		ids = append(ids, c.ID)
	}
	assert.Equal(t, []string{"a1", "c-late", "b-old"}, ids,
		"the newest sandbox first, whatever an older one counted; a name that it lacks, from the older one")

	server.Remove("new")
	a, ok := list(t, c)[0].Container("a")
	require.True(t, ok)
	assert.Equal(t, "a-old", a.ID)
}

func TestRestartChangesTheID(t *testing.T) {
	server := critest.Start(t)
	c := newClient(t, server.Endpoint())
	sandbox := critest.Sandbox{ID: "s", UID: "u", Ready: true}
	first := critest.Container{ID: "first", Name: "a", State: running, CreatedAt: at(1)}
	server.Run(sandbox, first)
	before, _ := list(t, c)[0].Container("a")

	first.State = exited
	server.Run(sandbox, first, critest.Container{ID: "second", Name: "a", State: running, CreatedAt: at(2)}) // both attempt 0
	after, _ := list(t, c)[0].Container("a")
	assert.Equal(t, "first", before.ID)
	assert.Equal(t, "second", after.ID)
	assert.Equal(t, cri.Running, after.State)
}

func TestPodsAreSortedAndApart(t *testing.T) {
	server := critest.Start(t)
	server.Run(critest.Sandbox{ID: "3", Namespace: "b", Name: "x", UID: "u3", Ready: true})
	server.Run(critest.Sandbox{ID: "2", Namespace: "a", Name: "y", UID: "u2", Ready: true})
	// A DaemonSet's old pod that ends, and a static pod of the same name.
	server.Run(critest.Sandbox{ID: "1", Namespace: "a", Name: "x", UID: "u1b"})
	server.Run(critest.Sandbox{ID: "0", Namespace: "a", Name: "x", UID: "u1a", Ready: true})
	var uids []string
	for _, p := range list(t, newClient(t, server.Endpoint())) {
		uids = append(uids, p.UID)
		assert.Len(t, p.Sandboxes, 1)
	}
	assert.Equal(t, []string{"u1a", "u1b", "u2", "u3"}, uids)
}

func TestSandboxesAreThoseOfAllNamespacesThatAreReady(t *testing.T) {
	server := critest.Start(t)
	server.Run(critest.Sandbox{ID: "1", Namespace: "web", Name: "old", UID: "u1", CreatedAt: at(1)})
	server.Run(critest.Sandbox{ID: "2", Namespace: "web", Name: "new", UID: "u2", Ready: true, CreatedAt: at(2)},
		critest.Container{ID: "c", Name: "web", State: running})
	server.Run(critest.Sandbox{ID: "3", Namespace: "kube-system", Name: "api", UID: "u3", Ready: true, CreatedAt: at(3)})
	pods, err := newClient(t, server.Endpoint()).Sandboxes(within(t, 5*time.Second))
	require.NoError(t, err)
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Namespace+"/"+pod.Name)
		assert.Empty(t, pod.Containers)
	}
	assert.Equal(t, []string{"kube-system/api", "web/new"}, names)

	server.Down()
	_, err = newClient(t, server.Endpoint()).Sandboxes(within(t, 5*time.Second))
	require.ErrorContains(t, err, "list pod sandboxes at ")
}
