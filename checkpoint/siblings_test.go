package checkpoint

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
)

// named is a pod as its controller makes it: under which name, by whom.
type named struct {
	name, kind, owner, hash string
}

// successors are the two pods that a controller makes of one workload, the one after
// the other.
var successors = map[string]struct {
	workload string
	old, new named
}{
	"DaemonSet":   {"web", named{"web-x7k2p", "DaemonSet", "web", ""}, named{"web-q9z4w", "DaemonSet", "web", ""}},
	"Deployment":  {"web", named{"web-5d4f-x7k2p", "ReplicaSet", "web-5d4f", "5d4f"}, named{"web-6c8b-q9z4w", "ReplicaSet", "web-6c8b", "6c8b"}},
	"ReplicaSet":  {"web", named{"web-x7k2p", "ReplicaSet", "web", ""}, named{"web-q9z4w", "ReplicaSet", "web", ""}},
	"StatefulSet": {"web-0", named{"web-0", "StatefulSet", "web", ""}, named{"web-0", "StatefulSet", "web", ""}},
	"bare pod":    {"web", named{"web", "", "", ""}, named{"web", "", "", ""}},
}

// by gives a pod the name and the controller that it has as this one.
func (m named) by(pod *v1.Pod) {
	pod.Name, pod.OwnerReferences, pod.Labels = m.name, nil, map[string]string{"pod-template-hash": m.hash}
	if m.kind != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: m.kind, Name: m.owner, Controller: new(true)}}
	}
}

// shown is that pod as the runtime shows it.
func (m named) shown(uid string, second int64) cri.Pod {
	pod := parentPod(uid, cri.Running, 0)
	pod.Name, pod.Sandboxes[0].CreatedAt = m.name, time.Unix(second, 0)
	return pod
}

func unlocked(pod *v1.Pod) {
	delete(pod.Annotations, "pod-checkpointer.io/lock")
	pod.Spec.Containers[0].Command = []string{"kube-scheduler"}
	pod.Spec.Containers[0].ReadinessProbe.ProbeHandler = v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(10259)}}
}

// TestAWorkloadOutlivesItsPods follows each kind of workload through an update: the old
// pod, both, the new one, and the new one where nobody but the runtime tells of it.
func TestAWorkloadOutlivesItsPods(t *testing.T) {
	for kind, s := range successors {
		for _, locked := range []bool{true, false} {
			t.Run(kind+" locked="+strconv.FormatBool(locked), func(t *testing.T) {
				n := newNode(t)
				n.key = store.Key{Namespace: "kube-system", Workload: s.workload}
				template := func(pod *v1.Pod) {
					if !locked {
						unlocked(pod)
					}
				}
				shown := func(m named, uid string, second int64) cri.Pod {
					pod := m.shown(uid, second)
					if !locked {
						delete(pod.Sandboxes[0].Annotations, "pod-checkpointer.io/lock")
					}
					return pod
				}
				n.save(parent(t, "old", older, template, s.old.by))
				n.runs(shown(s.old, "old", 1))
				n.locks("old")
				w, _ := n.look()
				require.Equal(t, Parent, w.Serves.value.Role)

				n.lists(parent(t, "old", older, ending, template, s.old.by), parent(t, "new", newImage, template, s.new.by))
				n.runs(shown(s.new, "new", 2))
				n.locks("old", "new")
				require.Len(t, n.observe().worlds, 1, "old and new are one workload")
				w, d := n.look()
				require.Equal(t, Parents{Changed: true, Saved: map[string]bool{"old": true, "new": false}}, seen(t, w))
				require.Equal(t, "new", d.draft.Source.PodUID, "the old one is on its way out")
				require.Equal(t, "c-new", d.draft.Source.ContainerID)
				require.Empty(t, d.findings)
				if locked {
					require.Equal(t, Parent, w.next().Role)
				}

				n.sources.pods.value = []cri.Pod{n.sources.pods.value[0], shown(s.new, "new", 2)}
				n.sources.api.err = errors.New("connection refused")
				n.locks("new")
				w, _ = n.look()
				require.Equal(t, Parent, w.Serves.value.Role, "by its name or its lock, which no generation knows yet")
				require.True(t, w.Parent.value.Live)

				static := shown(s.new, "static", 3)
				static.Source, static.Sandboxes[0].Annotations["kubernetes.io/config.source"] = "file", "file"
				n.sources.pods.value = []cri.Pod{n.sources.pods.value[0], static}
				n.locks("static")
				w, _ = n.look()
				require.NotEqual(t, Parent, w.Serves.value.Role, "a static pod of that name is none")
				require.False(t, w.Parent.value.Live)
			})
		}
	}
}

// The kubelet shows each static pod as a mirror at the API server, annotations and all.
func TestAMirrorIsNoParent(t *testing.T) {
	n := newNode(t)
	n.lists(parent(t, "mirror", func(pod *v1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "master-1", Controller: new(true)}}
		pod.Annotations["kubernetes.io/config.mirror"] = "0123"
	}))
	s := n.observe()
	require.Empty(t, s.worlds)
	parents, _ := s.api.Value()
	require.Empty(t, parents.strays, "it asks for nothing")
}

func TestSiblings(t *testing.T) {
	s := successors["ReplicaSet"]
	n := newNode(t)
	n.key.Workload = s.workload
	a, b := parent(t, "a", older, s.old.by), parent(t, "b", newImage, s.new.by)
	n.save(a)
	_, d := n.look()
	require.Empty(t, d.findings)

	n.lists(a, b)
	w, d := n.look()
	require.Equal(t, []string{"Siblings: web-q9z4w, web-x7k2p are pods of this workload, and all on this node: they have one checkpoint, that of the newest, web-q9z4w, " +
		"which starts when none of them runs; let no two be on one node (a DaemonSet, or anti-affinity). While an update goes on it is so for a moment"}, d.findings)
	require.Equal(t, "b", d.draft.Source.PodUID)
	require.True(t, seen(t, w).Changed, "and costs it no generation")
	n.lists(b, a)
	_, d = n.look()
	require.Equal(t, "b", d.draft.Source.PodUID, "in whatever order they are listed")

	for _, out := range []func(*v1.Pod){ending, func(pod *v1.Pod) { pod.Status.Phase = v1.PodFailed }} {
		n.lists(parent(t, "a", older, out, s.old.by), b)
		_, d = n.look()
		require.Empty(t, d.findings, "one that goes is none")
	}
}

// Of pods of one second it is always the same that is saved, or each View would be a new
// generation.
func TestSiblingsOfOneSecond(t *testing.T) {
	s := successors["ReplicaSet"]
	n := newNode(t)
	n.key.Workload = s.workload
	a, b := parent(t, "a", s.old.by), parent(t, "b", newImage, s.new.by)
	for _, listed := range [][]*v1.Pod{{a, b}, {b, a}} {
		n.lists(listed...)
		_, d := n.look()
		require.Equal(t, "b", d.draft.Source.PodUID)
	}
}
