package snapshot

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// noReference is the last gate: it refuses a spec in which anything still names
// an object of the API server. A kubelet of 1.34 or later does not run such a
// static pod, and older ones ran it without the object. It asks what the
// kubelet's HasAPIObjectReference asks (k8s.io/kubernetes v1.37.2,
// pkg/api/pod/util.go), but names what is allowed, since the fates leave few kinds
// of volumes.
func noReference(spec *v1.PodSpec) error {
	switch {
	case spec.ServiceAccountName != "" || spec.DeprecatedServiceAccount != "":
		return leftOver("spec.serviceAccountName")
	case len(spec.ImagePullSecrets) > 0:
		return leftOver("spec.imagePullSecrets")
	case len(spec.ResourceClaims) > 0:
		return leftOver("spec.resourceClaims")
	case len(spec.EphemeralContainers) > 0:
		return leftOver("spec.ephemeralContainers")
	}
	for i, v := range spec.Volumes {
		at := fmt.Sprintf("spec.volumes[%d]", i)
		rest := v.VolumeSource
		rest.HostPath, rest.EmptyDir, rest.DownwardAPI, rest.Image, rest.NFS = nil, nil, nil, nil, nil
		if rest != (v1.VolumeSource{}) || v.VolumeSource == rest {
			return leftOver(at)
		}
	}
	if err := noContainerReference(spec.InitContainers, "spec.initContainers"); err != nil {
		return err
	}
	return noContainerReference(spec.Containers, "spec.containers")
}

func noContainerReference(containers []v1.Container, at string) error {
	for i, c := range containers {
		if len(c.EnvFrom) > 0 {
			return leftOver(fmt.Sprintf("%s[%d].envFrom", at, i))
		}
		for j, e := range c.Env {
			if e.ValueFrom != nil && (e.ValueFrom.SecretKeyRef != nil || e.ValueFrom.ConfigMapKeyRef != nil) {
				return leftOver(fmt.Sprintf("%s[%d].env[%d].valueFrom", at, i, j))
			}
		}
	}
	return nil
}

func leftOver(at string) error {
	return refused(Unsupported, at, "it names an object of the API server; remove it")
}
