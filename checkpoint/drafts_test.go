package checkpoint

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
)

func seen(t *testing.T, w World) Parents {
	t.Helper()
	p, ok := w.API.Value()
	require.True(t, ok, w.API.Why())
	return p
}

func older(pod *v1.Pod) {
	pod.CreationTimestamp = metav1.NewTime(pod.CreationTimestamp.Add(-time.Hour))
}

func newImage(pod *v1.Pod) { pod.Spec.Containers[0].Image = "images.example/kube-apiserver:v2" }
func ending(pod *v1.Pod)   { pod.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
func withSecret(pod *v1.Pod) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "certs", VolumeSource: v1.VolumeSource{
		Secret: &v1.SecretVolumeSource{SecretName: "certs"},
	}})
	pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "certs", MountPath: "/certs"})
}

func unsupported(pod *v1.Pod) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}})
}

// Once it was said, it is so: the API server may be the one that ends.
func TestAParentThatIsBeingDeletedIsRemembered(t *testing.T) {
	n := newNode(t)
	n.save(parent(t, "parent"))
	n.locks("parent")
	n.lists(parent(t, "parent"))
	w, _ := n.look()
	require.False(t, w.Ending)
	n.lists(parent(t, "parent", ending))
	w, _ = n.look()
	require.True(t, w.Ending)
	n.sources.api.err = errors.New("refused")
	for range 2 {
		w, _ = n.look()
		require.True(t, w.Ending)
	}
	n.locks("")
	w, _ = n.look()
	require.False(t, w.Ending, "another one, or none, serves")
}

func TestAParentIsSavedOnce(t *testing.T) {
	n := newNode(t)
	n.lists(parent(t, "parent"))
	n.runs(parentPod("parent", cri.Running, 0))
	w, d := n.look()
	require.Equal(t, Parents{Changed: true, Saved: map[string]bool{}}, seen(t, w))
	require.Equal(t, "parent", d.draft.Source.PodUID)
	require.Equal(t, "master-1", d.draft.Source.Node)
	require.Equal(t, "node-uid", d.draft.Source.NodeUID)

	n.save(parent(t, "parent"))
	w, d = n.look()
	require.Equal(t, Parents{Saved: map[string]bool{"parent": true}}, seen(t, w))
	require.Equal(t, "c-parent", d.draft.Source.ContainerID, "whose lock and readiness will prove it")

	n.lists(parent(t, "parent", newImage))
	w, _ = n.look()
	require.True(t, seen(t, w).Changed)
}

func TestAViewIsReadOnce(t *testing.T) {
	n := protected(t)
	first, _ := n.observe().api.Value()
	again, _ := n.observe().api.Value()
	require.Same(t, first, again)
	n.lists(parent(t, "parent", newImage))
	next, _ := n.observe().api.Value()
	require.NotSame(t, first, next)
}

func TestAContainerThatNobodySawIsNoEvidence(t *testing.T) {
	n := newNode(t)
	n.sources.pods.silent = true
	n.lists(parent(t, "parent"))
	_, d := n.look()
	require.Equal(t, unseenContainer, d.draft.Source.ContainerID)
	n.sources.pods.silent = false
	_, d = n.look()
	require.Empty(t, d.draft.Source.ContainerID, "there is none")
}

// Only the container that takes the lock proves what it was started with.
func TestTheContainerThatTakesTheLockIsTheEvidence(t *testing.T) {
	n := newNode(t)
	n.save(parent(t, "parent"))
	pod := parentPod("parent", cri.Running, 0)
	pod.Containers = append([]cri.Container{{ID: "sidecar", Name: "sidecar", State: cri.Running}}, pod.Containers...)
	n.runs(pod)
	_, d := n.look()
	require.Equal(t, "c-parent", d.draft.Source.ContainerID)
	pod.Containers[1].State = cri.Exited
	_, d = n.look()
	require.Empty(t, d.draft.Source.ContainerID)
}

// A rolling update has two parents for a while.
func TestTheNewestParentIsSaved(t *testing.T) {
	n := newNode(t)
	n.save(parent(t, "old", older))
	n.lists(parent(t, "old", older), parent(t, "new", newImage))
	w, d := n.look()
	require.Equal(t, Parents{Changed: true, Saved: map[string]bool{"old": true, "new": false}}, seen(t, w))
	require.Equal(t, "new", d.draft.Source.PodUID)

	for _, out := range []func(*v1.Pod){
		ending,
		func(pod *v1.Pod) { pod.Status.Phase = v1.PodFailed },
		func(pod *v1.Pod) { pod.Status.Phase = v1.PodSucceeded },
	} {
		n.lists(parent(t, "old", older), parent(t, "new", newImage, out))
		w, d = n.look()
		require.False(t, seen(t, w).Changed, "one that is on its way out is not")
		require.Equal(t, "old", d.draft.Source.PodUID)
	}
}

func TestASuccessorWithTheSameSpecIsSavedAlready(t *testing.T) {
	n := newNode(t)
	n.save(parent(t, "old", older))
	n.lists(parent(t, "new"))
	w, _ := n.look()
	require.Equal(t, Parents{Saved: map[string]bool{"new": true}}, seen(t, w))
}

// No half of a generation is ever saved.
func TestAParentWithoutItsSecretIsNotSaved(t *testing.T) {
	certs := api.Ref{Kind: api.Secret, Namespace: "kube-system", Name: "certs"}
	n := newNode(t)
	view := func(v api.View) {
		v.Pods = []v1.Pod{*parent(t, "parent", withSecret)}
		n.sources.api.value = &v
	}
	view(api.View{Failed: map[api.Ref]error{certs: errors.New("get secrets certs in namespace kube-system: forbidden")}})
	w, d := n.look()
	_, ok := w.API.Value()
	require.False(t, ok, "what could not be read is unknown, not absent")
	require.Equal(t, "get secrets certs in namespace kube-system: forbidden", w.API.Why())
	require.Nil(t, d.draft)

	view(api.View{Missing: map[api.Ref]bool{certs: true}})
	w, d = n.look()
	require.False(t, seen(t, w).Changed)
	require.Contains(t, seen(t, w).Refused, "certs")
	require.Nil(t, d.draft)

	view(api.View{Secrets: map[api.Ref]*v1.Secret{certs: {Data: map[string][]byte{"tls.key": []byte("secret")}}}})
	w, d = n.look()
	require.True(t, seen(t, w).Changed)
	require.Len(t, d.draft.Volumes, 1)
	require.Equal(t, "certs", d.draft.Volumes[0].Name)
	require.Equal(t, []byte("secret"), d.draft.Volumes[0].Files[0].Data)
}

func TestAParentThatCantBeStaticIsRefusedByField(t *testing.T) {
	n := newNode(t)
	n.lists(parent(t, "parent", unsupported))
	w, d := n.look()
	require.Contains(t, seen(t, w).Refused, "spec.volumes[2].persistentVolumeClaim")
	require.Nil(t, d.draft)
	require.Empty(t, d.findings, "the state says it")

	n.save(parent(t, "parent"))
	n.lists(parent(t, "parent", unsupported))
	w, d = n.look()
	require.False(t, seen(t, w).Changed)
	require.Contains(t, d.findings[0], "unprotectable: Unsupported: ")
	require.Contains(t, d.findings[0], "the last generation stays")
}

func TestOnlyProtectedPodsInTheNamespacesCount(t *testing.T) {
	n := newNode(t)
	n.lists(
		parent(t, "elsewhere", func(pod *v1.Pod) { pod.Namespace = "default" }),
		parent(t, "unasked", func(pod *v1.Pod) { delete(pod.Annotations, "pod-checkpointer.io/checkpoint") }),
	)
	s := n.observe()
	require.Empty(t, s.worlds)
	n.config.Namespaces = []string{"kube-system", "default"}
	n.lists(parent(t, "elsewhere", func(pod *v1.Pod) { pod.Namespace = "default" }))
	require.Len(t, n.observe().worlds, 1)
}

func TestAnEmptyListIsKnown(t *testing.T) {
	n := protected(t)
	n.lists()
	w, d := n.look()
	require.Equal(t, Parents{Saved: map[string]bool{}}, seen(t, w), "it moves nothing: no workload is removed")
	require.Nil(t, d.draft)
	require.Equal(t, Protected, Decide(w, n.config.limits()).State)
}

// TestEachFindingLeavesTheNodeProtected has the ways in which a parent is not as it
// should be: each is named with what to do, and the copy on disk is as before.
func TestEachFindingLeavesTheNodeProtected(t *testing.T) {
	surge := func(maxSurge, uid string) func(*node, *v1.Pod) {
		return func(n *node, pod *v1.Pod) {
			owner := api.Owner{Namespace: "kube-system", Kind: "DaemonSet", Name: "kube-apiserver", UID: "ds"}
			n.sources.api.value.Owners = map[api.Owner]api.OwnerSpec{owner: {Found: true, UID: uid, MaxSurge: maxSurge}}
		}
	}
	for _, tt := range []struct {
		name    string
		see     func(*node, *v1.Pod)
		finding string
	}{
		{"as it should be", func(*node, *v1.Pod) {}, ""},
		{"a long grace", func(_ *node, pod *v1.Pod) { pod.Spec.TerminationGracePeriodSeconds = new(int64(30)) },
			"LongGrace: spec.terminationGracePeriodSeconds is 30: nobody may serve for so long while the pod is deleted or updated; set it to 10 or less, of kube-apiserver to 1"},
		{"the grace of an API server that says none", func(_ *node, pod *v1.Pod) { pod.Spec.TerminationGracePeriodSeconds = nil },
			"LongGrace: spec.terminationGracePeriodSeconds is absent, which is 30: nobody may serve for so long while the pod is deleted or updated; set it to 10 or less, of kube-apiserver to 1"},
		{"ten seconds are none", func(_ *node, pod *v1.Pod) { pod.Spec.TerminationGracePeriodSeconds = new(int64(10)) }, ""},
		{"a long goodbye", func(_ *node, pod *v1.Pod) { pod.Annotations["pod-checkpointer.io/handoff-grace"] = "30" },
			"LongGrace: a checkpoint may take 30s to end when it hands over, and nobody serves meanwhile; set metadata.annotations[pod-checkpointer.io/handoff-grace] to 10s or less"},
		{"a surge", surge("25%", "ds"),
			"MaxSurge: DaemonSet kube-apiserver may start a new pod beside the old one (maxSurge 25%): with a lock it waits for ever and the update stands still, without one both run; set updateStrategy.rollingUpdate.maxSurge to 0"},
		{"no surge", surge("0", "ds"), ""},
		{"none either", surge("0%", "ds"), ""},
		{"no rolling update", surge("", "ds"), ""},
		{"that of another DaemonSet of the name", surge("1", "another"), ""},
		{"no readiness probe of ours", func(_ *node, pod *v1.Pod) {
			pod.Spec.Containers[0].ReadinessProbe.ProbeHandler = v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Scheme: "HTTPS", Path: "/readyz", Port: intstr.FromInt32(6443)}}
		}, "UnsafeReadiness: spec.containers[0].readinessProbe passes while the pod waits for its lock; use lock-exec check --ready"},
		{"no lock-exec", func(n *node, _ *v1.Pod) {
			n.sources.execErr = errors.New("stat /opt/pod-checkpointer/bin/lock-exec: no such file or directory")
		}, "LockExecMissing: stat /opt/pod-checkpointer/bin/lock-exec: no such file or directory: without it no container of this workload starts again; put it there by pod-checkpointer install"},
		{"no lock-exec where nobody looks for it", func(n *node, _ *v1.Pod) {
			n.sources.execErr, n.config.BinDir = errors.New("no such file or directory"), "/opt/elsewhere"
		}, ""},
		{"another lock than the command's", func(_ *node, pod *v1.Pod) { pod.Annotations["pod-checkpointer.io/lock"] = "other" },
			"unprotectable: LockMismatch: spec.containers[0].command: it takes /run/lock/pod-checkpointer/kube-apiserver.lock, but the lock of the annotation is /run/lock/pod-checkpointer/other.lock; make them the same file; the last generation stays"},
		{"two that take the lock", func(_ *node, pod *v1.Pod) { pod.Spec.Containers = append(pod.Spec.Containers, pod.Spec.Containers[0]) },
			"unprotectable: LockMismatch: spec.containers[1].command: it takes a lock as well as spec.containers[0]; one container must; the last generation stays"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := protected(t)
			pod := parent(t, "parent")
			tt.see(n, pod)
			owners := n.sources.api.value.Owners
			n.lists(pod)
			n.sources.api.value.Owners = owners
			w, d := n.look()
			if tt.finding == "" {
				require.Empty(t, d.findings)
			} else {
				require.Equal(t, []string{tt.finding}, d.findings)
			}
			require.Equal(t, Protected, Decide(w, n.config.limits()).State)
			record, _ := w.Record.Value()
			require.Len(t, record.Generations, 1)
		})
	}
}
