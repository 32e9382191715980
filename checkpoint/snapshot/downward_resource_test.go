package snapshot

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The limits of the whole pod are not a checkpoint's, whose kubelet would tell what the
// node has instead.
func TestLimitsOfTheWholePodAreWrittenDown(t *testing.T) {
	pod := guardedPod(t)
	limit := v1.ResourceFieldSelector{Resource: "limits.memory", ContainerName: "web"}
	env(v1.EnvVarSource{ResourceFieldRef: &limit})(pod)
	downward(v1.DownwardAPIVolumeFile{Path: "memory", ResourceFieldRef: &limit})(pod)
	s, err := Take(pod, Objects{}, config)
	require.NoError(t, err)
	require.Equal(t, pod.Spec.Containers[0].Env, s.Pod.Spec.Containers[0].Env, "of the node")
	require.Empty(t, s.Volumes)

	pod.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")}}
	s, err = Take(pod, Objects{}, config)
	require.NoError(t, err)
	require.Equal(t, []v1.EnvVar{{Name: "A", Value: "1048576"}}, s.Pod.Spec.Containers[0].Env)
	require.Equal(t, "1048576", string(s.Volumes[0].Files[0].Data))

	pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Ki")}
	s, err = Take(pod, Objects{}, config)
	require.NoError(t, err)
	require.Equal(t, pod.Spec.Containers[0].Env, s.Pod.Spec.Containers[0].Env, "of the container, which keeps it")
}
