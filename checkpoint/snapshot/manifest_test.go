package snapshot

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

func sanitized(t *testing.T, workload string) *v1.Pod {
	t.Helper()
	pod := guardedPod(t)
	pod.OwnerReferences[0].Name = workload
	secret(v1.SecretVolumeSource{})(pod)
	s, err := Take(pod, Objects{Secrets: map[string]*v1.Secret{"cert": {}}}, config)
	require.NoError(t, err)
	return s.Pod
}

// The kubelet appends the node's name, and both together are a pod's name.
func TestManifestNameFits(t *testing.T) {
	payload := map[string]string{"tmp": "/state/tmp"}
	for _, tt := range []struct{ workload, node, want string }{
		{"web", "master-1", "web-checkpoint-01234567"},
		{strings.Repeat("a", 253), strings.Repeat("n", 60), strings.Repeat("a", 172) + "-checkpoint-01234567"},
		{strings.Repeat("a", 171) + ".b", strings.Repeat("N", 60), strings.Repeat("a", 171) + "-checkpoint-01234567"},
	} {
		data, err := Manifest(sanitized(t, tt.workload), activation, tt.node, 1, payload)
		require.NoError(t, err)
		var pod v1.Pod
		require.NoError(t, json.Unmarshal(data, &pod))
		require.Equal(t, tt.want, pod.Name)
	}
	_, err := Manifest(sanitized(t, "web"), activation, strings.Repeat("n", 240), 1, payload)
	require.ErrorContains(t, err, "make manifest of kube-system/web")
}

func TestManifestRefuses(t *testing.T) {
	payload := map[string]string{"tmp": "/state/tmp"}
	for _, tt := range []struct {
		why, activation string
		volumes         map[string]string
		change          func(*v1.Pod)
	}{
		{"not 32 hexadecimal digits", "0123", payload, nil},
		{"not 32 hexadecimal digits", strings.ToUpper(activation), payload, nil},
		{"volume tmp: payload path", activation, nil, nil},
		{"volume tmp: payload path", activation, map[string]string{"tmp": "state"}, nil},
		{`volumes ["lock"] are no payload volumes`, activation, map[string]string{"tmp": "/state", "lock": "/elsewhere"}, nil},
		{"no checkpoint", activation, payload, func(p *v1.Pod) { p.Annotations = nil }},
		{"no checkpoint", activation, payload, func(p *v1.Pod) { p.Namespace = "default" }},
		{"no names of workloads", activation, payload, annotate(AnnotationAfter, "a/b/c")},
		{"spec.serviceAccountName", activation, payload, func(p *v1.Pod) { p.Spec.ServiceAccountName = "a" }},
	} {
		pod := sanitized(t, "web")
		if tt.change != nil {
			tt.change(pod)
		}
		_, err := Manifest(pod, tt.activation, "n", 1, tt.volumes)
		require.ErrorContains(t, err, tt.why)
	}
}

// Whatever still names the API server is found, whoever put it there.
func TestNoReference(t *testing.T) {
	container := func(c v1.Container) func(*v1.PodSpec) {
		return func(s *v1.PodSpec) { s.InitContainers = []v1.Container{c} }
	}
	volume := func(source v1.VolumeSource) func(*v1.PodSpec) {
		return func(s *v1.PodSpec) { s.Volumes = append(s.Volumes, v1.Volume{VolumeSource: source}) }
	}
	for field, change := range map[string]func(*v1.PodSpec){
		"spec.serviceAccountName":        func(s *v1.PodSpec) { s.DeprecatedServiceAccount = "a" },
		"spec.imagePullSecrets":          func(s *v1.PodSpec) { s.ImagePullSecrets = make([]v1.LocalObjectReference, 1) },
		"spec.resourceClaims":            func(s *v1.PodSpec) { s.ResourceClaims = make([]v1.PodResourceClaim, 1) },
		"spec.ephemeralContainers":       func(s *v1.PodSpec) { s.EphemeralContainers = make([]v1.EphemeralContainer, 1) },
		"spec.volumes[2]":                volume(v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}),
		"spec.volumes[2] ":               volume(v1.VolumeSource{}),
		"spec.volumes[2]  ":              volume(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}, CSI: &v1.CSIVolumeSource{}}),
		"spec.initContainers[0].envFrom": container(v1.Container{EnvFrom: make([]v1.EnvFromSource, 1)}),
		"spec.initContainers[0].env[0].valueFrom": container(v1.Container{Env: []v1.EnvVar{{ValueFrom: &v1.EnvVarSource{
			SecretKeyRef: &v1.SecretKeySelector{}}}}}),
	} {
		pod := sanitized(t, "web")
		require.NoError(t, noReference(&pod.Spec))
		change(&pod.Spec)
		require.Equal(t, strings.TrimSpace(field), unprotectable(t, noReference(&pod.Spec)).Field)
		_, err := Decode(marshal(t, pod))
		require.ErrorContains(t, err, strings.TrimSpace(field))
	}
}

func TestDecodeLosesNothing(t *testing.T) {
	data := marshal(t, sanitized(t, "web"))
	_, err := Decode(data)
	require.NoError(t, err)
	_, err = Decode([]byte(strings.Replace(string(data), `"hostNetwork"`, `"hostNetworkOfTomorrow"`, 1)))
	require.ErrorContains(t, err, "hostNetworkOfTomorrow")
	_, err = Decode(data[:len(data)/2])
	require.ErrorContains(t, err, "decode sanitized pod")
}

// A lock workload whose lock can't be read must not start as one without.
func TestFactsOfALostLockIsAnError(t *testing.T) {
	pod := sanitized(t, "web")
	pod.Spec.Containers[0].Command = []string{"web"}
	_, err := FactsOf(pod)
	require.Equal(t, LockMismatch, unprotectable(t, err).Reason)
}
