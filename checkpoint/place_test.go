package checkpoint

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
)

// TestWhoHolds has everybody that the kernel's table may show.
func TestWhoHolds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		see    func(*node)
		holder string
		want   Party
	}{
		{"the parent that was saved", func(*node) {}, "parent", Party{Role: Parent, ID: "c-parent", Pod: "parent"}},
		{"its successor, known to the API server", func(n *node) { n.lists(parent(n.t, "successor")) },
			"successor", Party{Role: Parent, ID: "c-successor", Pod: "successor"}},
		{"its successor, known to the runtime alone", func(n *node) { n.runs(parentPod("successor", cri.Running, 0)) },
			"successor", Party{Role: Parent, ID: "c-successor", Pod: "successor"}},
		{"one who waited and is created only", func(n *node) { n.runs(parentPod("successor", cri.Created, 0)) },
			"successor", Party{Role: Parent, ID: "c-successor", Pod: "successor"}},
		{"a pod of another lock", func(n *node) {
			other := parentPod("other", cri.Running, 0)
			other.Sandboxes[0].Annotations["pod-checkpointer.io/lock"] = "etcd"
			n.runs(other)
		}, "other", Party{Role: Foreign, ID: "c-other", Pod: "other"}},
		{"a pod of another namespace", func(n *node) {
			other := parentPod("other", cri.Running, 0)
			other.Namespace = "default"
			n.runs(other)
		}, "other", Party{Role: Foreign, ID: "c-other", Pod: "other"}},
		{"a pod that nobody knows", func(*node) {}, "unheard-of", Party{Role: Foreign, ID: "c-unheard-of", Pod: "unheard-of"}},
		{"a process of the host", func(*node) {}, "pid 4711", Party{Role: Foreign, ID: "pid 4711"}},
		{"a static pod of others that wears a parent's annotations", func(n *node) {
			other := parentPod("other", cri.Running, 0)
			other.Source = "file"
			other.Sandboxes[0].Annotations["kubernetes.io/config.source"] = "file"
			n.runs(other)
		}, "other", Party{Role: Foreign, ID: "c-other", Pod: "other"}},
		{"a pod from the API that claims to be our checkpoint", func(n *node) {
			other := checkpointPod("other", cri.Running, 0)
			other.Source = "api"
			n.runs(other)
		}, "other", Party{Role: Foreign, ID: "c-other", Pod: "other"}},
		{"a checkpoint without a manifest", func(n *node) { n.runs(checkpointPod("older", cri.Running, 0)) },
			"older", Party{Role: Stale, ID: "c-older", Pod: "older", Activation: "older"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := protected(t)
			tt.see(n)
			n.locks(tt.holder)
			w, d := n.look()
			serves, ok := w.Serves.Value()
			require.True(t, ok)
			serves.Since = 0
			require.Equal(t, tt.want, serves)
			require.Contains(t, d.processes, serves.ID, "apply finds the process by it")
		})
	}
}

// A template that lost the annotation, or has another lock, makes parents as before.
// The checkpoint that serves hands over to the first; of the second it is told what
// to do.
func TestATemplateThatChangesItsAnnotations(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(map[string]string)
		lists   bool // the API server has it as protected
		finding string
	}{
		{"asks no more", func(a map[string]string) { delete(a, "pod-checkpointer.io/checkpoint") }, false,
			"Unwanted: the pod kube-system/kube-apiserver-x7k2p does not ask to be protected: what is on disk stays, and starts when the pod is gone; the manual says how to remove it"},
		{"asks since it runs", func(a map[string]string) { delete(a, "pod-checkpointer.io/checkpoint") }, true, ""},
		{"has another lock", func(a map[string]string) { a["pod-checkpointer.io/lock"] = "other" }, true,
			`LockRenamed: the pod kube-system/kube-apiserver-x7k2p is under the lock "other", and what is on disk of it under "kube-apiserver": neither waits for the other; set annotation and command back`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := protected(t)
			id := n.activate(1)
			pod := parentPod("x7k2p", cri.Running, 0)
			tt.change(pod.Sandboxes[0].Annotations)
			n.runs(checkpointPod(id, cri.Running, 0))
			n.runs(pod)
			n.locks(id, "x7k2p")
			n.sources.pods.value = n.sources.pods.value[len(n.sources.pods.value)-2:]
			n.lists()
			if tt.lists {
				n.lists(parent(t, "x7k2p"))
			}
			w, d := n.look()
			require.Equal(t, Parent, w.next().Role)
			if tt.finding == "" {
				require.Empty(t, d.findings)
			} else {
				require.Equal(t, []string{tt.finding}, d.findings)
			}
			n.sources.api.err = errors.New("connection refused")
			w, d = n.look()
			require.Equal(t, Parent, w.next().Role, "the API server need not say so")
			require.NotContains(t, d.findings, "Unwanted")
		})
	}
}

func TestWhoHoldsIsKnownWithoutTheRuntime(t *testing.T) {
	n := protected(t)
	id := n.activate(1)
	n.sources.pods.err = errors.New("deadline exceeded")
	n.sources.api.err = errors.New("connection refused")
	n.locks("parent", id, "unheard-of")
	w, _ := n.look()
	serves, _ := w.Serves.Value()
	require.Equal(t, Parent, serves.Role, "disk knows its pod")
	require.Equal(t, Party{Role: Checkpoint, ID: "c-" + id, Pod: id, Activation: id, Since: n.clock.now}, w.next(), "the manifest knows its own")
	queue, _ := w.Queue.Value()
	require.Equal(t, Foreign, queue[1].Role)
}

func TestTheParentOfAHandoffIsKnownByTheStore(t *testing.T) {
	n := protected(t)
	record, _ := n.store.Workload(n.key)
	record.State.Handoff = &store.Handoff{BootID: boot, ParentUID: "successor"}
	_, err := n.store.SetState(n.key, record.State)
	require.NoError(t, err)
	n.sources.pods.silent, n.sources.api.silent = true, true
	n.locks("successor")
	w, _ := n.look()
	serves, _ := w.Serves.Value()
	require.Equal(t, Parent, serves.Role)
}

func TestACheckpointWhoseManifestWasReplacedIsStale(t *testing.T) {
	n := protected(t)
	older := n.activate(1)
	n.runs(checkpointPod(older, cri.Running, 0))
	n.locks(older)
	w, _ := n.look()
	serves, _ := w.Serves.Value()
	require.Equal(t, Checkpoint, serves.Role)
	newer := n.activate(1)
	n.locks(older, newer)
	w, _ = n.look()
	serves, _ = w.Serves.Value()
	require.Equal(t, Stale, serves.Role)
	require.Equal(t, Checkpoint, w.next().Role)
}

func TestQueueIsTheKernels(t *testing.T) {
	n := protected(t)
	id := n.activate(1)
	n.locks("pid 4711", "parent", id)
	n.look()
	first := n.clock.now
	n.locks("pid 4711", id)
	n.look()
	n.locks("pid 4711", "parent", id)
	w, _ := n.look()
	queue, _ := w.Queue.Value()
	require.Equal(t, []Party{
		{Role: Parent, ID: "c-parent", Pod: "parent", Since: n.clock.now},
		{Role: Checkpoint, ID: "c-" + id, Pod: id, Activation: id, Since: first},
	}, queue, "who left the line and came back waits since then")
}

// TestParentContainers has what the runtime may show of a workload's parents.
func TestParentContainers(t *testing.T) {
	notReady := func(p cri.Pod) cri.Pod { p.Sandboxes[0].Ready = false; return p }
	later := func(p cri.Pod) cri.Pod { p.Sandboxes[0].CreatedAt = time.Unix(1, 0); return p }
	for _, tt := range []struct {
		name string
		pods []cri.Pod
		want Containers
	}{
		{"it runs", []cri.Pod{parentPod("p", cri.Running, 0)}, Containers{Live: true}},
		{"it is created", []cri.Pod{parentPod("p", cri.Created, 0)}, Containers{Live: true}},
		{"it exited", []cri.Pod{parentPod("p", cri.Exited, 0)}, Containers{}},
		{"it exited twice, who knows when", []cri.Pod{parentPod("p", cri.Exited, 1)}, Containers{}},
		{"it runs after many exits", []cri.Pod{parentPod("p", cri.Running, 7)}, Containers{Live: true}},
		{"its state is unknown to the runtime", []cri.Pod{parentPod("p", cri.Unknown, 0)}, Containers{Live: true}},
		{"its sandbox ended", []cri.Pod{notReady(parentPod("p", cri.Exited, 0))}, Containers{Gone: true}},
		{"it is not made yet", nil, Containers{New: true}},
		{"there is only a checkpoint", []cri.Pod{checkpointPod("c", cri.Running, 0)}, Containers{New: true}},
		{"an old one ended, its successor runs", []cri.Pod{notReady(parentPod("old", cri.Exited, 3)), later(parentPod("p", cri.Running, 0))}, Containers{Live: true}},
		{"a sidecar does not stand for the container that takes the lock", []cri.Pod{func() cri.Pod {
			p := parentPod("p", cri.Exited, 0)
			p.Containers = append(p.Containers, cri.Container{ID: "s", Name: "sidecar", State: cri.Running})
			return p
		}()}, Containers{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.save(parent(t, "parent"))
			n.sources.pods.value = append(n.sources.pods.value, tt.pods...)
			w, _ := n.look()
			got, ok := w.Parent.Value()
			require.True(t, ok)
			got.Since = 0
			require.Equal(t, tt.want, got)
		})
	}
}

// A parent that the API server has and the runtime has not is yet to be made, not gone.
func TestAParentIsNewUntilItHasASandbox(t *testing.T) {
	n := newNode(t)
	n.save(parent(t, "parent"))
	seen := func() Containers {
		w, _ := n.look()
		got, _ := w.Parent.Value()
		got.Since = 0
		return got
	}
	require.Equal(t, Containers{New: true}, seen())
	n.lists(parent(t, "parent", func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }))
	require.Equal(t, Containers{Gone: true}, seen(), "it is on its way out")
	n.lists()
	require.Equal(t, Containers{Gone: true}, seen())
	n.lists(parent(t, "parent"))
	n.sources.api.err = errors.New("connection refused")
	require.Equal(t, Containers{Gone: true}, seen(), "nobody says that there is one")
}

func TestTwoExitsAreForgivenAfterTenMinutes(t *testing.T) {
	n := newNode(t)
	n.save(parent(t, "parent"))
	show := func(state cri.State, attempt uint32) Containers {
		n.sources.pods.value = []cri.Pod{parentPod("parent", state, attempt)}
		w, _ := n.look()
		got, _ := w.Parent.Value()
		return got
	}
	require.False(t, show(cri.Running, 5).Twice, "what ended before we came is of unknown age")
	require.False(t, show(cri.Exited, 5).Twice, "once")
	for range 11 {
		require.True(t, show(cri.Exited, 6).Twice)
		n.clock.now += 54 * time.Second
	}
	n.clock.now += time.Minute
	require.False(t, show(cri.Exited, 6).Twice)
}

func TestExitsOfTheCheckpoint(t *testing.T) {
	n := protected(t)
	w, _ := n.look()
	require.Equal(t, Known(0), w.Exits, "nothing is active")
	id := n.activate(1)
	show := func(p cri.Pod) World {
		n.sources.pods.value = []cri.Pod{p}
		w, _ := n.look()
		return w
	}
	require.Equal(t, Known(0), show(checkpointPod(id, cri.Running, 0)).Exits)
	require.Equal(t, Known(1), show(checkpointPod(id, cri.Exited, 0)).Exits)
	require.Equal(t, Known(1), show(checkpointPod(id, cri.Created, 1)).Exits)
	require.Equal(t, Known(2), show(checkpointPod(id, cri.Exited, 1)).Exits)
	require.Equal(t, Known(2), show(checkpointPod("another", cri.Exited, 9)).Exits, "another activation's exits are its own")
	n.watch = newWatch()
	require.Equal(t, Known(3), show(checkpointPod(id, cri.Running, 3)).Exits, "a restart of ours forgets none of this boot's")
	n.watch, n.clock.boot = newWatch(), "the next boot"
	require.Equal(t, Known(0), show(checkpointPod(id, cri.Running, 3)).Exits, "those of another boot are of unknown age")
}

// lockless is a node whose workload has no lock.
func lockless(t *testing.T) *node {
	n := newNode(t)
	n.save(parent(t, "parent", func(pod *v1.Pod) {
		delete(pod.Annotations, "pod-checkpointer.io/lock")
		pod.Spec.Containers[0].Command = []string{"kube-scheduler"}
		pod.Spec.Containers[0].ReadinessProbe = nil
	}))
	return n
}

func withoutLockAnnotation(p cri.Pod) cri.Pod {
	delete(p.Sandboxes[0].Annotations, "pod-checkpointer.io/lock")
	p.Name = "kube-apiserver-x7k2p"
	return p
}

func TestWithoutALockToServeIsToRun(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(p cri.Pod, after time.Duration) cri.Pod {
		p.Containers[0].CreatedAt = began.Add(after)
		return p
	}
	n := lockless(t)
	id := n.activate(1)
	before := at(withoutLockAnnotation(parentPod("parent", cri.Running, 0)), 0)
	ours := at(checkpointPod(id, cri.Running, 0), time.Minute)
	after := at(withoutLockAnnotation(parentPod("parent", cri.Running, 1)), 2*time.Minute)
	ended := at(withoutLockAnnotation(parentPod("parent", cri.Exited, 0)), 0)
	exited := at(withoutLockAnnotation(parentPod("parent", cri.Exited, 1)), 2*time.Minute)
	gone := at(withoutLockAnnotation(parentPod("parent", cri.Exited, 1)), 2*time.Minute)
	gone.Sandboxes[0].Ready = false
	for _, tt := range []struct {
		name   string
		pods   []cri.Pod
		serves Role
		next   Role
	}{
		{"nobody runs", nil, Nobody, Nobody},
		{"the parent runs", []cri.Pod{before}, Parent, Nobody},
		{"the checkpoint runs", []cri.Pod{ours}, Checkpoint, Nobody},
		{"a parent that came after it is next", []cri.Pod{after, ours}, Checkpoint, Parent},
		{"one that runs beside it is too", []cri.Pod{before, ours}, Checkpoint, Parent},
		{"one that came and ended may have ended because the checkpoint has its port", []cri.Pod{exited, ours}, Checkpoint, Parent},
		{"but not once its pod is gone", []cri.Pod{gone, ours}, Checkpoint, Nobody},
		{"one that ended before is not", []cri.Pod{ended, ours}, Checkpoint, Nobody},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n.sources.pods.value = append([]cri.Pod{{Namespace: "kube-system", Name: "x"}}, tt.pods...)
			w, _ := n.look()
			require.False(t, w.Locked)
			serves, ok := w.Serves.Value()
			require.True(t, ok)
			assert.Equal(t, tt.serves, serves.Role)
			assert.Equal(t, tt.next, w.next().Role)
		})
	}
	n.sources.pods.err = errors.New("deadline exceeded")
	w, _ := n.look()
	_, ok := w.Serves.Value()
	require.False(t, ok, "without the runtime nobody knows who runs")
}
