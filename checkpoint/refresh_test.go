package checkpoint

import (
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
)

// tells has the API server list a pod, and the Secret certs with these contents.
func (n *node) tells(pod *v1.Pod, contents string) {
	n.sources.api.value = &api.View{NodeUID: "node-uid", Pods: []v1.Pod{*pod}, Secrets: map[api.Ref]*v1.Secret{
		{Kind: api.Secret, Namespace: "kube-system", Name: "certs"}: {Data: map[string][]byte{"tls.key": []byte(contents)}},
	}}
}

// serves is a node on which a checkpoint of this pod serves, with the Secret as it was.
func serves(t *testing.T, pod *v1.Pod) (n *node, l *Loop, activation string) {
	n = newNode(t)
	n.tells(pod, "first")
	_, d := n.look()
	require.NotNil(t, d.draft)
	_, err := n.store.Commit(n.key, *d.draft)
	require.NoError(t, err)
	activation = n.activate(1)
	n.runs(checkpointPod(activation, cri.Running, 0))
	n.locks(activation)
	n.sources.ready["c-"+activation] = said[bool]{value: true}
	l = n.loop(io.Discard)
	n.pass(l)
	n.pass(l)
	require.Equal(t, Serving, n.status(l).State)
	return n, l, activation
}

func (n *node) status(l *Loop) WorkloadStatus { return l.Status().Workloads[0] }

// mounts is a file of an activation.
func (n *node) mounts(activation, name string) string {
	state, err := n.disk.Dir("/state")
	require.NoError(n.t, err)
	data, err := state.ReadFile("activations/" + activation + "/" + name)
	require.NoError(n.t, err)
	return string(data)
}

// writes lists what is done to the disk while do runs.
func (n *node) writes(do func()) []string {
	var done []string
	n.disk.Fail(func(op, name string) error {
		if !slices.Contains([]string{"open", "stat", "read", "readdir", "readlink"}, op) {
			done = append(done, op+" "+name)
		}
		return nil
	})
	defer n.disk.Fail(nil)
	do()
	return done
}

func TestAChangedSecretReachesTheCheckpointThatServes(t *testing.T) {
	pod := parent(t, "parent", withSecret)
	n, l, activation := serves(t, pod)
	require.Equal(t, "first", n.mounts(activation, "certs/tls.key"))
	manifests, err := n.manifests.List()
	require.NoError(t, err)

	n.tells(pod, "second")
	n.pass(l)
	n.pass(l)
	n.pass(l)
	require.Equal(t, "second", n.mounts(activation, "certs/tls.key"))
	after, err := n.manifests.List()
	require.NoError(t, err)
	require.Equal(t, manifests, after, "nothing is started anew")
	is := n.status(l)
	require.Equal(t, []int64{2, 1, 2}, []int64{is.Generation, is.Activated, is.Files})
	require.Empty(t, is.Upcoming)
	require.Empty(t, n.writes(func() {
		for range 90 {
			n.tells(pod, "second") // told anew, and the same
			n.pass(l)
		}
	}), "what is the same writes nothing")
}

func TestWhatIsReadOnceCountsFromTheNextStart(t *testing.T) {
	pod := parent(t, "parent", withSecret, func(pod *v1.Pod) {
		mounts := pod.Spec.Containers[0].VolumeMounts
		mounts[len(mounts)-1].SubPath = "tls.key"
	})
	n, l, activation := serves(t, pod)
	n.tells(pod, "second")
	n.pass(l)
	quiet := n.writes(func() {
		n.pass(l)
		n.pass(l)
	})
	require.Empty(t, quiet)
	require.Equal(t, "first", n.mounts(activation, "certs/tls.key"))
	is := n.status(l)
	require.Equal(t, []int64{2, 1, 1}, []int64{is.Generation, is.Activated, is.Files})
	require.Equal(t, "generation 2 counts from the next start: its volume certs is another one, which containers read once", is.Upcoming)

	n.locks("") // it ended, and the next one has it
	n.sources.kubelet.err = io.EOF
	require.NoError(t, n.manifests.Remove(kubelet.File(n.key.Namespace, n.key.Workload)))
	for range 3 {
		n.pass(l)
	}
	require.Equal(t, int64(2), n.status(l).Activated)
}
