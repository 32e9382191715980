// Package snapshot turns a parent, the pod that the API server knows, into
// what a kubelet can run without an API server: a static pod and the files
// behind its volumes.
//
// It is pure: values in, values out. It fails closed: a field that no rule
// names is refused by its path, since a checkpoint that the kubelet rejects, or
// that starts without its key file, would be found out after the reboot.
// The same parent and the same Secrets always give the same bytes.
package snapshot

import (
	"fmt"
	"io/fs"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Config is what a snapshot has to know of this node.
type Config struct {
	LockDir  string // the host's directory of lock files
	BinDir   string // the host's directory with lock-exec
	Node     string // name of this node; "" leaves the parent's unchecked
	Endpoint string // https URL where in-cluster clients on this node find the API server; "": not known
}

// Snapshot is a parent made static.
type Snapshot struct {
	// Pod carries no name and no uid yet, and payload volumes without their
	// paths: Manifest gives it both. Its metadata is the namespace and our own
	// annotations, so that FactsOf and IdentityOf need nothing else.
	Pod     *v1.Pod
	Volumes []Volume // the payload, in the order of the pod's volumes
	Facts
	Findings []string // what a user ought to know and need not act on
}

// Volume is the payload of one volume.
type Volume struct {
	Name     string
	Files    []File // sorted by path
	Optional bool   // all that it is from may be absent; then there are no files
}

// File is one file of a payload, with what the kubelet would have given it.
type File struct {
	Path     string // relative, clean, never out of the volume
	Data     []byte
	Mode     fs.FileMode // permissions only
	UID, GID int
}

// Take makes the snapshot of a parent. It leaves pod and o alone. An error is
// *Unprotectable unless the pod is none of this node.
func Take(pod *v1.Pod, o Objects, c Config) (*Snapshot, error) {
	if c.Node != "" && pod.Spec.NodeName != c.Node {
		return nil, fmt.Errorf("snapshot %s/%s: pod of node %q, not of %q", pod.Namespace, pod.Name, pod.Spec.NodeName, c.Node)
	}
	id, err := identify(pod)
	if err != nil {
		return nil, err
	}
	settings, err := readAnnotations(pod)
	if err != nil {
		return nil, err
	}
	id.Lock = settings.lock

	spec := pod.Spec.DeepCopy()
	if err := applyFates(spec); err != nil {
		return nil, err
	}
	from := source{pod: pod, id: id, objects: o, endpoint: c.Endpoint}
	nameAccountVolume(spec)
	volumes, err := payload(spec, from)
	if err != nil {
		return nil, err
	}
	if err := sanitize(spec, from); err != nil {
		return nil, err
	}
	envs, err := resolveEnv(spec, from)
	if err != nil {
		return nil, err
	}
	if err := tellEndpoint(spec, envs, from); err != nil {
		return nil, err
	}
	if err := guard(spec, id.Lock, c.LockDir); err != nil {
		return nil, err
	}
	dirs, err := launchEnv(spec, envs, from, c)
	if err != nil {
		return nil, err
	}
	if err := keepData(spec, settings.data); err != nil {
		return nil, err
	}
	static := &v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   id.Namespace,
			Annotations: id.annotations(settings.handoffGrace(spec), settings.after),
		},
		Spec: *spec,
	}
	if _, err := MountPoints(static); err != nil {
		return nil, err
	}
	if settings.data != "" {
		static.Annotations[AnnotationData] = settings.data
	}
	facts, err := FactsOf(static) // the last gate: nothing names the API server any more
	if err != nil {
		return nil, err
	}
	return &Snapshot{Pod: static, Volumes: append(volumes, dirs...), Facts: facts, Findings: findings(&pod.Spec, facts)}, nil
}
