package snapshot

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

func TestProfilesOfAnnotationsAreKept(t *testing.T) {
	local := func(name string) *v1.AppArmorProfile {
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	for _, tt := range []struct {
		annotation  string
		field, want *v1.AppArmorProfile
	}{
		{"localhost/tight", nil, local("tight")},
		{"localhost/tight", local("tighter"), local("tighter")},
		{"runtime/default", nil, &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}},
		{"unconfined", nil, &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}},
		{"anything", nil, nil},
		{"", local("tight"), local("tight")},
	} {
		pod := guardedPod(t)
		pod.Annotations["container.apparmor.security.beta.kubernetes.io/web"] = tt.annotation
		if tt.field != nil {
			pod.Spec.Containers[0].SecurityContext = &v1.SecurityContext{AppArmorProfile: tt.field}
		}
		s, err := Take(pod, Objects{}, config)
		require.NoError(t, err)
		if tt.want == nil {
			assert.Nil(t, s.Pod.Spec.Containers[0].SecurityContext, tt.annotation)
			continue
		}
		assert.Equal(t, tt.want, s.Pod.Spec.Containers[0].SecurityContext.AppArmorProfile, tt.annotation)
	}
}
