package snapshot

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// payload takes the Secrets out of the spec's volumes. What remains of such a
// volume is a directory of the host without a path, which no kubelet accepts,
// until Manifest gives it one.
func payload(spec *v1.PodSpec, o Objects) ([]Volume, error) {
	var volumes []Volume
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		at := fmt.Sprintf("spec.volumes[%d]", i)
		switch {
		case v.Secret != nil:
			files, err := secretFiles(v.Secret, o, owner(spec.SecurityContext), at+".secret")
			if err != nil {
				return nil, err
			}
			volumes = append(volumes, Volume{Name: v.Name, Files: files, Optional: isTrue(v.Secret.Optional)})
			v.VolumeSource = v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Type: new(v1.HostPathDirectory)}}
		case v.HostPath != nil && !path.IsAbs(v.HostPath.Path):
			return nil, refused(Unsupported, at+".hostPath.path", "%q is not absolute; write the whole path", v.HostPath.Path)
		case v.VolumeSource == v1.VolumeSource{}:
			return nil, refused(Unsupported, at, "the volume has no source that this version knows; use a hostPath volume")
		}
	}
	return volumes, nil
}

func isPayload(v v1.Volume) bool {
	return v.HostPath != nil && v.HostPath.Path == ""
}

// ownership is what the kubelet does to the files of a Secret volume: they are
// root's, of whoever the container runs as, and an fsGroup gets them as its own,
// to read (pkg/volume/volume_linux.go, changeFilePermission, v1.37.2). It
// does neither to a directory of the host, so that we have to.
type ownership struct {
	gid  int
	mask fs.FileMode
}

func owner(pod *v1.PodSecurityContext) ownership {
	if pod == nil || pod.FSGroup == nil {
		return ownership{}
	}
	return ownership{gid: int(*pod.FSGroup), mask: 0o440}
}

// secretFiles is what the kubelet's MakePayload does
// (pkg/volume/secret/secret.go, v1.37.2).
func secretFiles(s *v1.SecretVolumeSource, o Objects, own ownership, at string) ([]File, error) {
	secret, found := o.Secrets[s.SecretName]
	if !found || secret == nil {
		if !isTrue(s.Optional) {
			return nil, refused(MissingSecret, at+".secretName", "there is no Secret %q; create it, or set optional: true", s.SecretName)
		}
		secret = &v1.Secret{}
	}
	mode := fs.FileMode(v1.SecretVolumeSourceDefaultMode)
	if s.DefaultMode != nil {
		mode = fs.FileMode(*s.DefaultMode)
	}
	files := map[string]File{}
	add := func(at, name, key string, mode fs.FileMode) error {
		clean, ok := cleanPath(name)
		if !ok {
			return refused(UnsafePath, at, "%q is no path within the volume; choose another one", name)
		}
		files[clean] = File{
			Path: clean,
			Data: slices.Clone(secret.Data[key]),
			Mode: (mode | own.mask).Perm(),
			GID:  own.gid,
		}
		return nil
	}
	if len(s.Items) == 0 {
		for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
			if err := add(at+".secretName", key, key, mode); err != nil {
				return nil, err
			}
		}
	}
	for i, item := range s.Items {
		at := fmt.Sprintf("%s.items[%d]", at, i)
		if _, ok := secret.Data[item.Key]; !ok {
			if isTrue(s.Optional) {
				continue
			}
			return nil, refused(MissingSecret, at+".key", "the Secret %q has no key %q; add it, or set optional: true", s.SecretName, item.Key)
		}
		mode := mode
		if item.Mode != nil {
			mode = fs.FileMode(*item.Mode)
		}
		if err := add(at+".path", item.Path, item.Key, mode); err != nil {
			return nil, err
		}
	}
	return sorted(files, at)
}

// sorted refuses a file that another one needs as its directory.
func sorted(files map[string]File, at string) ([]File, error) {
	var list []File
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := files[dir]; ok {
				return nil, refused(UnsafePath, at+".items", "%q is a file and the directory of %q; choose another path", dir, name)
			}
		}
		list = append(list, files[name])
	}
	return list, nil
}

// Limits of Linux that the kubelet checks (pkg/volume/util/atomic_writer.go,
// validatePath, v1.37.2). Names that begin with two dots are its own.
const (
	maxPathLen = 4096
	maxNameLen = 255
)

func cleanPath(name string) (string, bool) {
	if name == "" || path.IsAbs(name) || len(name) > maxPathLen ||
		strings.HasPrefix(name, "..") || strings.ContainsRune(name, 0) {
		return "", false
	}
	for element := range strings.SplitSeq(name, "/") {
		if element == ".." || len(element) > maxNameLen {
			return "", false
		}
	}
	clean := path.Clean(name)
	return clean, clean != "." && !strings.HasPrefix(clean, "..")
}

func isTrue(b *bool) bool { return b != nil && *b }
