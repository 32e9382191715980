package checkpoint

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// cluster has the API server of that cluster answer, with no pod on this node.
func (n *node) cluster(uid string) {
	n.sources.api.value = &api.View{KubeSystemUID: uid, NodeUID: "node-uid", NodeIP: "10.0.0.1"}
}

func TestTheFirstClusterIsNoted(t *testing.T) {
	n := newNode(t)
	n.sources.api.silent = true
	l := n.loop(io.Discard)
	l.Pass(t.Context())
	require.Empty(t, n.store.Node().KubeSystemUID)
	n.sources.api.silent = false
	n.cluster("this-cluster")
	l.Pass(t.Context())
	require.Equal(t, store.Node{Format: n.store.Node().Format, Name: "master-1", NodeUID: "node-uid", NodeIP: "10.0.0.1", KubeSystemUID: "this-cluster"}, n.store.Node())
}

func TestAnotherClusterIsUnknown(t *testing.T) {
	n := protected(t)
	l := n.loop(io.Discard)
	n.cluster("this-cluster")
	l.Pass(t.Context())
	w, _ := n.look()
	require.True(t, known(w)["api"])

	n.cluster("another-cluster")
	n.sources.api.value.Pods = append(n.sources.api.value.Pods, *parent(t, "impostor", newImage))
	l.Pass(t.Context())
	w, d := n.look()
	require.False(t, known(w)["api"])
	require.Contains(t, w.API.Why(), "another-cluster")
	require.Nil(t, d.draft, "nothing of it is saved")
	require.Equal(t, "this-cluster", n.store.Node().KubeSystemUID)
}

func TestADryRunNotesNothing(t *testing.T) {
	n := newNode(t)
	n.config.DryRun = true
	n.cluster("this-cluster")
	n.loop(io.Discard).Pass(t.Context())
	require.Empty(t, n.store.Node().KubeSystemUID)
}
