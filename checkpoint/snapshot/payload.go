package snapshot

import (
	"fmt"
	"path"

	v1 "k8s.io/api/core/v1"
)

// payload takes out of the spec's volumes all that a kubelet would have to ask
// the API server for. What remains of such a volume is a directory of the host
// without a path, which no kubelet accepts, until Manifest gives it one.
func payload(spec *v1.PodSpec, from source) ([]Volume, error) {
	var volumes []Volume
	own := owner(spec)
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		t := tree{own: own, at: fmt.Sprintf("spec.volumes[%d]", i), files: map[string]File{}}
		ours, err := t.fill(v.VolumeSource, from)
		if err != nil {
			return nil, err
		}
		if !ours {
			continue
		}
		files, err := t.list()
		if err != nil {
			return nil, err
		}
		volumes = append(volumes, Volume{Name: v.Name, Files: files, Optional: mayBeAbsent(v.VolumeSource)})
		v.VolumeSource = v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Type: new(v1.HostPathDirectory)}}
	}
	return volumes, nil
}

// fill writes the files of a volume; ours is false for one that every kubelet
// makes without an API server.
func (t *tree) fill(v v1.VolumeSource, from source) (ours bool, err error) {
	switch {
	case v.Secret != nil:
		s := v.Secret
		t.mode, t.user = modeOf(s.DefaultMode, v1.SecretVolumeSourceDefaultMode), s.DefaultUser
		return true, t.addObject(selection{Secret, s.SecretName, isTrue(s.Optional), s.Items, t.at + ".secret", ".secretName"}, from.objects)
	case v.ConfigMap != nil:
		c := v.ConfigMap
		t.mode, t.user = modeOf(c.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode), c.DefaultUser
		return true, t.addObject(selection{ConfigMap, c.Name, isTrue(c.Optional), c.Items, t.at + ".configMap", ".name"}, from.objects)
	case v.HostPath != nil && !path.IsAbs(v.HostPath.Path):
		return false, refused(Unsupported, t.at+".hostPath.path", "%q is not absolute; write the whole path", v.HostPath.Path)
	case v == v1.VolumeSource{}:
		return false, refused(Unsupported, t.at, "the volume has no source that this version knows; use a hostPath volume")
	}
	return false, nil
}

// mayBeAbsent tells of a payload volume whether a pod runs without all that it
// takes its files from.
func mayBeAbsent(v v1.VolumeSource) bool {
	switch {
	case v.Secret != nil:
		return isTrue(v.Secret.Optional)
	case v.ConfigMap != nil:
		return isTrue(v.ConfigMap.Optional)
	}
	return false
}

func isPayload(v v1.Volume) bool {
	return v.HostPath != nil && v.HostPath.Path == ""
}

func isTrue(b *bool) bool { return b != nil && *b }
