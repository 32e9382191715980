package snapshot

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ownedPod(name, kind, owner, hash string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}}
	if kind != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ConfigMap", Name: "x"}, {Kind: kind, Name: owner, Controller: new(true)}}
	}
	if hash != "" {
		pod.Labels = map[string]string{"pod-template-hash": hash}
	}
	return pod
}

func TestWorkload(t *testing.T) {
	for _, tt := range []struct {
		pod            *v1.Pod
		workload, kind string
	}{
		{ownedPod("web-x7k2p", "DaemonSet", "web", ""), "web", "DaemonSet"},
		{ownedPod("web-5d4f-x7k2p", "ReplicaSet", "web-5d4f", "5d4f"), "web", "Deployment"},
		{ownedPod("web-5d4f-x7k2p", "ReplicaSet", "web-5d4f", ""), "web-5d4f", "ReplicaSet"},
		{ownedPod("web-5d4f-x7k2p", "ReplicaSet", "web-5d4f", "4f"), "web-5d4f", "ReplicaSet"},
		{ownedPod("web-0", "StatefulSet", "web", ""), "web-0", "StatefulSet"},
		{ownedPod("web", "", "", ""), "web", "Pod"},
	} {
		namespace, workload, err := Workload(tt.pod)
		require.NoError(t, err)
		assert.Equal(t, "kube-system/"+tt.workload, namespace+"/"+workload)
		id, err := identify(tt.pod)
		require.NoError(t, err)
		assert.Equal(t, tt.kind, id.Kind)
	}
}

func TestWanted(t *testing.T) {
	for _, tt := range []struct {
		annotations map[string]string
		want        bool
	}{
		{nil, false},
		{map[string]string{AnnotationCheckpoint: "true"}, true},
		{map[string]string{"checkpointer.alpha.coreos.com/checkpoint": "true"}, true},
		{map[string]string{AnnotationCheckpoint: "false"}, false},
		{map[string]string{AnnotationCheckpoint: "false", "checkpointer.alpha.coreos.com/checkpoint": "true"}, false},
		{map[string]string{AnnotationCheckpoint: "True"}, true}, // and Take says what is wrong
		{map[string]string{AnnotationCheckpoint: "true", "kubernetes.io/config.mirror": "1f"}, false},
		{map[string]string{AnnotationCheckpoint: "true", AnnotationCheckpointOf: "a/b"}, false},
		{map[string]string{AnnotationLock: "web"}, false},
	} {
		assert.Equal(t, tt.want, Wanted(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: tt.annotations}}), tt.annotations)
	}
}

func TestMatches(t *testing.T) {
	long := strings.Repeat("long-", 12) // 60 characters
	identity := func(kind, workload, lock string) Identity {
		return Identity{Namespace: "kube-system", Workload: workload, Lock: lock, Kind: kind}
	}
	for _, tt := range []struct {
		pod, lock string
		w         Identity
		want      bool
	}{
		{"anything", "web", identity("DaemonSet", "web", "web"), true},
		{"anything", "other", identity("DaemonSet", "web", "web"), false},
		{"web-x7k2p", "other", identity("DaemonSet", "web", "web"), true},
		{"web-x7k2p", "", identity("DaemonSet", "web", "web"), true},
		{"web-x7k2p", "web", identity("DaemonSet", "web", ""), true},
		{"web-x7k2p", "", identity("DaemonSet", "web", ""), true},
		{"web-x7k2", "", identity("DaemonSet", "web", ""), false},
		{"web-x7ka2", "", identity("DaemonSet", "web", ""), false}, // no vowels are generated
		{"web-api-x7k2p", "", identity("DaemonSet", "web", ""), false},
		{"web", "", identity("DaemonSet", "web", ""), false},
		{long[:58] + "x7k2p", "", identity("DaemonSet", long+"er", ""), true},
		{"web-5d4f-x7k2p", "", identity("Deployment", "web", ""), true},
		{"web-x7k2p", "", identity("Deployment", "web", ""), false},
		{"web-api-x7k2p", "", identity("Deployment", "web", ""), false},
		{"web-5d4f5d4f5d4-x7k2p", "", identity("Deployment", "web", ""), false},
		{"web-5d4f-x7k2p", "", identity("ReplicaSet", "web-5d4f", ""), true},
		{"web-0", "", identity("StatefulSet", "web-0", ""), true},
		{"web-1", "", identity("StatefulSet", "web-0", ""), false},
		{"web", "", identity("Pod", "web", ""), true},
		{"web", "", identity("", "web", ""), false},
	} {
		annotations := map[string]string{"kubernetes.io/config.source": "api", AnnotationCheckpoint: "true"}
		if tt.lock != "" {
			annotations[AnnotationLock] = tt.lock
		}
		assert.Equal(t, tt.want, Matches("kube-system", tt.pod, annotations, tt.w), "%s of %v", tt.pod, tt.w)
		assert.False(t, Matches("default", tt.pod, annotations, tt.w), "namespace")
		annotations["kubernetes.io/config.source"] = "file"
		assert.False(t, Matches("kube-system", tt.pod, annotations, tt.w), "source")
	}
	unprotected := map[string]string{"kubernetes.io/config.source": "api"}
	assert.True(t, Matches("kube-system", "web-x7k2p", unprotected, identity("DaemonSet", "web", "web")), "its template has changed")
	assert.False(t, Matches("kube-system", "anything", unprotected, identity("DaemonSet", "web", "web")))
	assert.False(t, Matches("kube-system", "web-5d4f-x7k2p", unprotected, identity("Deployment", "web", "")), "or of a DaemonSet web-5d4f")
	assert.False(t, Matches("kube-system", "web", map[string]string{"kubernetes.io/config.source": "api", AnnotationCheckpointOf: "a/b"}, identity("Pod", "web", "")), "a checkpoint")
}

// A generated name that is cut within the hash still belongs to its Deployment.
func TestMatchesACutName(t *testing.T) {
	workload := strings.Repeat("a", 52)
	w := Identity{Namespace: "kube-system", Workload: workload, Kind: "Deployment"}
	annotations := map[string]string{"kubernetes.io/config.source": "api", AnnotationCheckpoint: "true"}
	pod := (workload + "-7d9f8bc6d5-")[:58] + "x7k2p"
	require.True(t, Matches("kube-system", pod, annotations, w))
}

func TestIdentityComesBack(t *testing.T) {
	pod := guardedPod(t)
	s, err := Take(pod, Objects{}, config)
	require.NoError(t, err)
	require.Equal(t, Identity{Namespace: "kube-system", Workload: "web", Lock: "web", Kind: "DaemonSet"}, IdentityOf(s.Pod))
}

func TestHandoffGrace(t *testing.T) {
	for _, tt := range []struct {
		say, program string
		termination  *int64
		want         time.Duration
	}{
		{"", "web", nil, 30 * time.Second},
		{"", "web", new(int64(7)), 7 * time.Second},
		{"", "/usr/bin/kube-apiserver", new(int64(7)), 0},
		{"3", "kube-apiserver", new(int64(7)), 3 * time.Second},
		{"0", "web", new(int64(7)), 0},
		{"1m30s", "web", nil, 90 * time.Second},
		{"0.5", "web", nil, 500 * time.Millisecond},
	} {
		pod := guardedPod(t)
		pod.Spec.Containers[0].Command[4] = tt.program
		pod.Spec.TerminationGracePeriodSeconds = tt.termination
		if tt.say != "" {
			pod.Annotations[AnnotationHandoffGrace] = tt.say
		}
		s, err := Take(pod, Objects{}, config)
		require.NoError(t, err)
		assert.Equal(t, tt.want, s.Grace, "%q %s", tt.say, tt.program)
	}
}

func TestReferences(t *testing.T) {
	volume := func(name string, optional bool) v1.Volume {
		return v1.Volume{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: name, Optional: &optional}}}
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n"}, Spec: v1.PodSpec{Volumes: []v1.Volume{
		volume("b", true), volume("a", true), volume("b", false), {}, volume("", false)}}}
	require.Equal(t, []Reference{{Secret, "n", "a", true}, {Secret, "n", "b", false}}, References(pod))
}
