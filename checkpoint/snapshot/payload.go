package snapshot

import (
	"fmt"
	"path"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// payload takes out of the spec's volumes all that a kubelet would have to ask
// the API server for. What remains of such a volume is a directory of the host
// without a path, which no kubelet accepts, until Manifest gives it one.
func payload(spec *v1.PodSpec, from source) ([]Volume, error) {
	var volumes []Volume
	own, err := owner(spec)
	if err != nil {
		return nil, err
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if slices.ContainsFunc(spec.Volumes[:i], func(other v1.Volume) bool { return other.Name == v.Name }) {
			return nil, refused(Unsupported, fmt.Sprintf("spec.volumes[%d].name", i), "there are two volumes %q; rename one", v.Name)
		}
		t := tree{own: own, at: fmt.Sprintf("spec.volumes[%d]", i), files: map[string]File{}}
		ours, err := t.fill(&v.VolumeSource, from)
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
func (t *tree) fill(v *v1.VolumeSource, from source) (ours bool, err error) {
	switch {
	case set(*v) != 1:
		return false, refused(Unsupported, t.at, "the volume has no source that this version knows, or several; use a hostPath volume")
	case v.Secret != nil:
		s := v.Secret
		t.mode, t.user = modeOf(s.DefaultMode, v1.SecretVolumeSourceDefaultMode), s.DefaultUser
		return true, t.addObject(selection{Secret, s.SecretName, isTrue(s.Optional), s.Items, t.at + ".secret", ".secretName"}, from.objects)
	case v.ConfigMap != nil:
		c := v.ConfigMap
		t.mode, t.user = modeOf(c.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode), c.DefaultUser
		return true, t.addObject(selection{ConfigMap, c.Name, isTrue(c.Optional), c.Items, t.at + ".configMap", ".name"}, from.objects)
	case v.Projected != nil:
		own, err := ownProjected(v.Projected, from, t.at+".projected")
		switch {
		case err != nil:
			return false, err
		case own:
			v.DownwardAPI, v.Projected = asDownward(v.Projected), nil
			return false, nil
		}
		return true, t.addProjected(v.Projected, from)
	case v.DownwardAPI != nil:
		d := v.DownwardAPI
		if own, err := ownDownward(d.Items, from, t.at+".downwardAPI"); own || err != nil {
			return false, err
		}
		t.mode, t.user = modeOf(d.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode), d.DefaultUser
		return true, t.addDownward(d.Items, from, t.at+".downwardAPI")
	case v.Image != nil && v.Image.Reference == "":
		return false, refused(Unsupported, t.at+".image.reference", "it names no image; name one")
	case v.HostPath != nil && !path.IsAbs(v.HostPath.Path):
		return false, refused(Unsupported, t.at+".hostPath.path", "%q is not absolute; write the whole path", v.HostPath.Path)
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
	case v.Projected != nil:
		return !slices.ContainsFunc(v.Projected.Sources, func(s v1.VolumeProjection) bool {
			return (s.Secret == nil || !isTrue(s.Secret.Optional)) && (s.ConfigMap == nil || !isTrue(s.ConfigMap.Optional))
		})
	}
	return false
}

// set counts the fields of a union that are set.
func set(union any) (n int) {
	v := reflect.ValueOf(union)
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			n++
		}
	}
	return n
}

func isPayload(v v1.Volume) bool {
	return v.HostPath != nil && v.HostPath.Path == ""
}

func isTrue(b *bool) bool { return b != nil && *b }
