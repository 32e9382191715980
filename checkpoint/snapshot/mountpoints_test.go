package snapshot

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

func TestMountPoints(t *testing.T) {
	pod := guardedPod(t)
	secret(v1.SecretVolumeSource{})(pod)
	pod.Spec.Volumes[1].Name = "certs"
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
		{Name: "lock", MountPath: "/lock"},
		{Name: "certs", MountPath: "/etc/kubernetes/"},
		{Name: "lock", MountPath: "/etc/kubernetes-lock"},
		{Name: "lock", MountPath: "/etc/kubernetes/lock/inner"}, // in what is mounted on lock
		{Name: "lock", MountPath: "/etc/kubernetes/lock"},
		{Name: "lock", MountPath: "/etc/kubernetes/lock-too"},
		{Name: "certs", MountPath: "/etc"},
		{Name: "lock", MountPath: "/etc/a/b"},
	}
	pod.Spec.InitContainers = []v1.Container{{Name: "init", Image: "a", VolumeMounts: []v1.VolumeMount{
		{Name: "certs", MountPath: "/c"}, {Name: "lock", MountPath: "/c/lock"}, {Name: "lock", MountPath: "/c/init"},
	}}}
	objects := Objects{Secrets: map[string]*v1.Secret{"cert": {}}}
	s, err := Take(pod, objects, config)
	require.NoError(t, err)
	points, err := MountPoints(s.Pod)
	require.NoError(t, err)
	require.Equal(t, map[string][]string{"certs": {"a/b", "init", "kubernetes", "kubernetes-lock", "lock", "lock-too"}}, points)

	pod.Spec.Containers[0].VolumeMounts[7].MountPath = "/etc/..data"
	_, err = Take(pod, objects, config)
	u := unprotectable(t, err)
	require.Equal(t, UnsafePath, u.Reason)
	require.Equal(t, "spec.containers[0].volumeMounts[7].mountPath", u.Field)
}
