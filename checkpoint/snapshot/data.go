package snapshot

import (
	"path"

	v1 "k8s.io/api/core/v1"
)

// Data is a directory of the host that must be the same one whenever a checkpoint
// starts.
type Data struct {
	Path string // "": there is none
	Etcd string // the etcd member that was seen in it; "": none, or not known yet
}

// HoldsEtcd notes which etcd member is in the data directory: on another one the
// checkpoint must not start. "" is none.
func (s *Snapshot) HoldsEtcd(member string) {
	s.Data.Etcd = member
	delete(s.Pod.Annotations, AnnotationDataEtcd)
	if member != "" {
		s.Pod.Annotations[AnnotationDataEtcd] = member
	}
}

// dataOf reads what HoldsEtcd and keepData wrote.
func dataOf(sanitized *v1.Pod) Data {
	return Data{Path: sanitized.Annotations[AnnotationData], Etcd: sanitized.Annotations[AnnotationDataEtcd]}
}

// keepData finds the volume in which the data directory lies. Nobody makes that anew
// where it is absent: the kubelet waits for it.
func keepData(spec *v1.PodSpec, dir string) error {
	found := dir == ""
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.HostPath == nil || isPayload(*v) || !within(dir, path.Clean(v.HostPath.Path)) {
			continue
		}
		found = true
		if t := v.HostPath.Type; t == nil || *t == v1.HostPathUnset || *t == v1.HostPathDirectoryOrCreate {
			must := v1.HostPathDirectory
			v.HostPath.Type = &must
		}
	}
	if !found {
		return refused(BadAnnotation, annotationField(AnnotationData), "%s is in no hostPath volume of the pod; write the path on the host, as it stands in the volume", dir)
	}
	return nil
}

// dataPath tells whether a text is the path of a directory.
func dataPath(text string) bool {
	return path.IsAbs(text) && path.Clean(text) == text && text != "/"
}
