package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Annotations of the daemon's own pods.
const (
	AnnotationFormat = Prefix + "format"  // of the store, which this daemon can read
	AnnotationCopyOf = Prefix + "copy-of" // namespace/workload, of a static copy
)

// accountPath is where every client looks for the pod's service account, and
// where admission mounts it (k8s.io/kubernetes v1.37.2,
// plugin/pkg/admission/serviceaccount/admission.go, DefaultAPITokenMountPath).
const accountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// Self makes the static copy of the daemon out of its own pod from the API, as the
// JSON of a manifest. What a kubelet could not run without an API server is left
// out: the service account, whose credentials stand in the state directory instead,
// and the init containers, whose work is on the disk by now. The rest follows the
// fates of a parent.
//
// Every pod of one template on one node gives the same bytes, and so the same uid:
// a copy is written when its content changes, and at no other time. Its name is
// always the same one, so that it may be replaced only while the kubelet has its
// pods from the API server: before that a kubelet never starts a second pod of one
// name. An error is *Unprotectable unless the pod is bound to no node.
func Self(pod *v1.Pod) ([]byte, error) {
	node := pod.Spec.NodeName
	if node == "" {
		return nil, errors.New("static copy: the pod is bound to no node")
	}
	id, err := identify(pod)
	if err != nil {
		return nil, err
	}
	spec := pod.Spec.DeepCopy()
	if err := selfSpec(spec, source{pod: pod, id: id}); err != nil {
		return nil, err
	}
	static := &v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   id.Namespace,
			Annotations: map[string]string{AnnotationCopyOf: id.Namespace + "/" + id.Workload},
		},
		Spec: *spec,
	}
	if format, ok := pod.Annotations[AnnotationFormat]; ok {
		static.Annotations[AnnotationFormat] = format
	}
	if static.Name, err = selfName(id.Workload, node); err != nil {
		return nil, err
	}
	return sealed(static, node)
}

func selfSpec(spec *v1.PodSpec, from source) error {
	for i, c := range spec.InitContainers {
		if c.RestartPolicy != nil {
			return refused(Unsupported, fmt.Sprintf("spec.initContainers[%d].restartPolicy", i),
				"a sidecar would be missing in the static copy; make it a container")
		}
	}
	spec.InitContainers = nil
	account := accountVolumes(spec)
	for i := range spec.Volumes {
		switch v := &spec.Volumes[i]; {
		case account[v.Name]: // it goes last, so that the others keep their place in the names of fields
			v.VolumeSource = v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
		default:
			if kind := asked(v.VolumeSource); kind != "" {
				return refused(Unsupported, fmt.Sprintf("spec.volumes[%d].%s", i, kind),
					"the static copy runs without an API server to ask for it; use a hostPath volume")
			}
		}
	}
	if err := applyFates(spec); err != nil {
		return err
	}
	if volumes, err := payload(spec, from); err != nil {
		return err
	} else if len(volumes) > 0 {
		return refused(Unsupported, "spec.volumes", "of %q the static copy's own values are others; use a hostPath volume", volumes[0].Name)
	}
	if err := sanitize(spec, from); err != nil {
		return err
	}
	dropVolumes(spec, account)
	return noReference(spec)
}

// asked names the kind of a volume whose files are the API server's to give; "" of others.
func asked(v v1.VolumeSource) string {
	switch {
	case v.Secret != nil:
		return "secret"
	case v.ConfigMap != nil:
		return "configMap"
	case v.Projected != nil:
		return "projected"
	}
	return ""
}

// accountVolumes names the volumes that are mounted where a service account is,
// whoever put them there.
func accountVolumes(spec *v1.PodSpec) map[string]bool {
	names := map[string]bool{}
	for _, c := range spec.Containers {
		for _, m := range c.VolumeMounts {
			if path.Clean(m.MountPath) == accountPath {
				names[m.Name] = true
			}
		}
	}
	return names
}

func dropVolumes(spec *v1.PodSpec, names map[string]bool) {
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v v1.Volume) bool { return names[v.Name] })
	for i := range spec.Containers {
		c := &spec.Containers[i]
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return names[m.Name] })
	}
}

// selfName leaves room for the node's name, which the kubelet appends.
func selfName(workload, node string) (string, error) {
	name := workload + "-static"
	if errs := validation.IsDNS1123Subdomain(name + "-" + strings.ToLower(node)); len(errs) > 0 {
		return "", refused(Unsupported, "metadata.name", "%q on node %q: %s", name, node, strings.Join(errs, "; "))
	}
	return name, nil
}

// sealed gives the pod a uid that is a digest of all the rest: with another content
// it is another pod to the kubelet. Two nodes have two.
func sealed(static *v1.Pod, node string) ([]byte, error) {
	data, err := json.Marshal(static)
	if err != nil {
		return nil, fmt.Errorf("static copy: %w", err)
	}
	sum := sha256.Sum256(append(data, node...))
	static.UID = types.UID(hex.EncodeToString(sum[:16]))
	if data, err = json.MarshalIndent(static, "", "  "); err != nil {
		return nil, fmt.Errorf("static copy: %w", err)
	}
	return append(data, '\n'), nil
}
