package snapshot

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// confine keeps the AppArmor profiles that only annotations name, since a checkpoint
// has none of its parent's. The API server has made fields of them since Kubernetes
// 1.30, but not of pods that were there before. A kubelet asks first the container's
// field, then the annotation, then the pod's field
// (pkg/security/apparmor/helpers.go, GetProfile, v1.37.2).
func confine(spec *v1.PodSpec, annotations map[string]string) {
	for _, c := range allContainers(spec) {
		profile := profileOf(annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name])
		if profile == nil || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			continue
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &v1.SecurityContext{}
		}
		c.SecurityContext.AppArmorProfile = profile
	}
}

// profileOf returns nil for what the kubelet takes no notice of.
func profileOf(annotation string) *v1.AppArmorProfile {
	switch name, local := strings.CutPrefix(annotation, v1.DeprecatedAppArmorBetaProfileNamePrefix); {
	case local:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	case annotation == v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	case annotation == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	}
	return nil
}
