package checkpoint

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
)

// withImageCommand adds a container that runs what its image says, with a variable
// from a Secret.
func withImageCommand(pod *v1.Pod) {
	pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{
		Name: "sidecar", Image: "images.example/sidecar:v1", Args: []string{"serve"},
		Env: []v1.EnvVar{{Name: "PASSWORD", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
			LocalObjectReference: v1.LocalObjectReference{Name: "certs"}, Key: "password",
		}}}},
	})
}

func TestWhatAnImageRunsIsAskedOfTheRuntime(t *testing.T) {
	certs := api.Ref{Kind: api.Secret, Namespace: "kube-system", Name: "certs"}
	n := newNode(t)
	see := func() {
		n.sources.api.value = &api.View{NodeUID: "node-uid", Pods: []v1.Pod{*parent(t, "parent", withImageCommand)},
			Secrets: map[api.Ref]*v1.Secret{certs: {Data: map[string][]byte{"password": []byte("hidden")}}}}
	}
	tell := func(image string, what said[*snapshot.Image]) {
		n.sources.entrypoints = map[string]said[*snapshot.Image]{image: what}
	}
	see()
	w, _ := n.look()
	require.Equal(t, "entrypoint of image images.example/sidecar:v1: it is being asked for", w.API.Why())
	require.Equal(t, Errands{Entrypoints: []string{"images.example/sidecar:v1"}}, n.errands())

	seenPod := parentPod("parent", cri.Running, 0)
	seenPod.Containers = append(seenPod.Containers, cri.Container{ID: "c2", Name: "sidecar", ImageRef: "sha256:1"})
	n.runs(seenPod)
	see()
	n.look()
	require.Equal(t, []string{"sha256:1"}, n.errands().Entrypoints, "what runs, not what the name stands for now")

	tell("sha256:1", said[*snapshot.Image]{err: errors.New("the runtime is silent")})
	w, _ = n.look()
	require.Equal(t, "the runtime is silent", w.API.Why())

	tell("sha256:1", said[*snapshot.Image]{})
	w, _ = n.look()
	require.Contains(t, seen(t, w).Refused, "spec.containers[1].command")
	require.Equal(t, []string{"sha256:1"}, n.errands().Entrypoints, "it may tell yet")

	tell("sha256:1", said[*snapshot.Image]{value: &snapshot.Image{Entrypoint: []string{"/sidecar"}}})
	w, d := n.look()
	require.True(t, seen(t, w).Changed)
	require.Contains(t, string(d.draft.Pod), `"--","/sidecar"],"args":["serve"]`)
	require.NotContains(t, string(d.draft.Pod), "hidden")
}
