package snapshot

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// verifyConfined: a checkpoint may do no more than its parent.
func verifyConfined(t *testing.T, pod *v1.Pod, static *v1.PodSpec) {
	t.Helper()
	parent := &pod.Spec
	require.Equal(t, parent.SecurityContext, static.SecurityContext)
	require.Equal(t, parent.HostUsers, static.HostUsers, "user namespace")
	require.Equal(t, []bool{parent.HostNetwork, parent.HostPID, parent.HostIPC, isTrue(parent.ShareProcessNamespace)},
		[]bool{static.HostNetwork, static.HostPID, static.HostIPC, isTrue(static.ShareProcessNamespace)}, "namespaces of the host")
	made := allContainers(static)
	require.Len(t, made, len(parent.InitContainers)+len(parent.Containers))
	for i, c := range allContainers(parent) {
		require.Equal(t, c.Name, made[i].Name)
		verifyContainer(t, pod, c.Container, made[i].Container)
		verifyMounts(t, parent, static, c.Container, made[i].Container)
	}
}

func verifyContainer(t *testing.T, pod *v1.Pod, parent, static *v1.Container) {
	t.Helper()
	had, has := contextOf(parent), contextOf(static)
	require.Equal(t, profile(pod, parent), profile(&v1.Pod{Spec: v1.PodSpec{SecurityContext: pod.Spec.SecurityContext}}, static), "AppArmor")
	had.AppArmorProfile, has.AppArmorProfile = nil, nil
	require.Equal(t, had, has)
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		limit, limited := parent.Resources.Limits[name]
		limitNow, limitedNow := static.Resources.Limits[name]
		require.Equal(t, limited, limitedNow, name)
		require.Zero(t, limit.Cmp(limitNow), name)
	}
}

func contextOf(c *v1.Container) v1.SecurityContext {
	if c.SecurityContext == nil {
		return v1.SecurityContext{}
	}
	return *c.SecurityContext
}

// profile is the one that confines a container, in the kubelet's order.
func profile(pod *v1.Pod, c *v1.Container) *v1.AppArmorProfile {
	annotated := profileOf(pod.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name])
	switch own := contextOf(c).AppArmorProfile; {
	case own != nil:
		return own
	case annotated != nil:
		return annotated
	case pod.Spec.SecurityContext != nil:
		return pod.Spec.SecurityContext.AppArmorProfile
	}
	return nil
}

// verifyMounts: of the host a container sees what its parent does, and what we
// add can't be written to.
func verifyMounts(t *testing.T, parentSpec, staticSpec *v1.PodSpec, parent, static *v1.Container) {
	t.Helper()
	require.GreaterOrEqual(t, len(static.VolumeMounts), len(parent.VolumeMounts))
	for i, m := range static.VolumeMounts {
		volume := staticSpec.Volumes[slices.IndexFunc(staticSpec.Volumes, func(v v1.Volume) bool { return v.Name == m.Name })]
		if isPayload(volume) || i >= len(parent.VolumeMounts) {
			require.True(t, m.ReadOnly, "%s can be written to", m.Name)
		}
		if i >= len(parent.VolumeMounts) {
			continue
		}
		before := parent.VolumeMounts[i]
		require.Equal(t, before.MountPath, m.MountPath)
		require.True(t, m.ReadOnly || !before.ReadOnly, "%s can be written to", m.Name)
		require.Equal(t, before.BindMountOptions, m.BindMountOptions)
		require.Equal(t, before.MountPropagation, m.MountPropagation)
		if volume.HostPath != nil && !isPayload(volume) {
			had := parentSpec.Volumes[slices.IndexFunc(parentSpec.Volumes, func(v v1.Volume) bool { return v.Name == before.Name })]
			require.Equal(t, had.HostPath, volume.HostPath)
		}
	}
}
