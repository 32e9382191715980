package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api/apitest"
)

// changing has something done to the server while it is asked for a part of its
// paths, the first n times.
func changing(s *apitest.Server, part string, n int, change func()) {
	asked := 0
	s.Before(func(r *http.Request) {
		if strings.Contains(r.URL.Path, part) {
			if asked++; asked <= n {
				change()
			}
		}
	})
}

func TestAViewIsOfOneTime(t *testing.T) {
	s := start(t)
	s.Put(pod("kube-system", "p", "master-0", "certs", "key"), secret("kube-system", "certs"), secret("kube-system", "key"))
	changing(s, "/secrets/key", 1, func() {
		s.Put(secret("kube-system", "certs"), secret("kube-system", "key")) // after certs was read
	})
	v, err := view(t, client(t, s.Kubeconfig()))
	require.NoError(t, err)
	require.Len(t, v.Secrets, 2)
	require.Len(t, s.Requests(), 2*5, "everything anew, once")
	assert.Equal(t, s.Revision(), v.Secrets[name("key")].ResourceVersion)
	assert.NotEqual(t, v.Secrets[name("certs")].ResourceVersion, v.Secrets[name("key")].ResourceVersion)
}

func TestAnObjectThatChangesAllTheTimeIsUnknownAndNoOther(t *testing.T) {
	s := start(t)
	s.Put(configured(pod("kube-system", "p", "master-0", "certs"), "busy", "calm"),
		secret("kube-system", "certs"), configMap("kube-system", "busy"), configMap("kube-system", "calm"))
	changing(s, "/configmaps/busy", 100, func() { s.Put(configMap("kube-system", "busy")) })
	v, err := view(t, client(t, s.Kubeconfig()))
	require.NoError(t, err)
	busy := api.Ref{Kind: api.ConfigMap, Namespace: "kube-system", Name: "busy"}
	require.ErrorIs(t, v.Failed[busy], api.ErrChanging)
	require.EqualError(t, v.Failed[busy], "get configmaps busy in namespace kube-system: changed while it was read, 3 times on end")
	assert.NotContains(t, v.ConfigMaps, busy)
	assert.Len(t, v.ConfigMaps, 1)
	assert.Len(t, v.Secrets, 1)
	assert.Len(t, s.Requests(), 3*6)
}

// With --etcd-servers-overrides, what is newer by its number need not be so.
func TestAnObjectOfAnotherEtcdIsNoChange(t *testing.T) {
	s := start(t)
	s.Put(pod("kube-system", "p", "master-0", "certs"), secret("kube-system", "certs"))
	s.Rewind(7)
	v, err := view(t, client(t, s.Kubeconfig()))
	require.NoError(t, err)
	require.Len(t, v.Secrets, 1)
	require.Empty(t, v.Failed)
	require.Len(t, s.Requests(), 2*4)
}
