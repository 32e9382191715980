package snapshot

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// envData returns the values of an object, none if it is absent and may be.
func envData(o Objects, kind Kind, name string, optional *bool, at string) (map[string]string, error) {
	values := map[string]string{}
	secret, config := o.Secrets[name], o.ConfigMaps[name]
	switch {
	case kind == Secret && secret != nil:
		for key, value := range secret.Data {
			values[key] = string(value)
		}
	case kind == ConfigMap && config != nil:
		return config.Data, nil
	case !isTrue(optional):
		return nil, refused(missing(kind), at, "there is no %s %q; create it, or set optional: true", kind, name)
	}
	return values, nil
}

func envValue(o Objects, kind Kind, object v1.LocalObjectReference, key string, optional *bool, at string) (value string, found bool, err error) {
	data, err := envData(o, kind, object.Name, optional, at+".name")
	if err != nil {
		return "", false, err
	}
	value, found = data[key]
	if !found && !isTrue(optional) {
		return "", false, refused(missing(kind), at+".key", "the %s %q has no key %q; add it, or set optional: true", kind, object.Name, key)
	}
	return value, found, nil
}

// checkFile: a kubelet reads the file when it starts the container, out of an
// emptyDir alone (pkg/apis/core/validation/validation.go,
// validateFileKeyRefVolumes, v1.37.2).
func checkFile(f *v1.FileKeySelector, spec *v1.PodSpec, at string) error {
	if !slices.ContainsFunc(spec.Volumes, func(v v1.Volume) bool { return v.Name == f.VolumeName && v.EmptyDir != nil }) {
		return refused(Unsupported, at, "%q is no emptyDir volume of the pod; use one", f.VolumeName)
	}
	return nil
}
