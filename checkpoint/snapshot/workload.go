package snapshot

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Identity is what successive parents of one workload have in common, and what
// tells them from other pods when there is no API server to ask.
type Identity struct {
	Namespace string
	Workload  string // name of the controller; of a StatefulSet's pod or a bare pod, the pod's
	Lock      string // "": none
	Kind      string // DaemonSet, Deployment, ReplicaSet, StatefulSet or Pod
}

// Kinds of controllers, by how they name their pods.
const (
	kindDaemonSet   = "DaemonSet"
	kindDeployment  = "Deployment" // a ReplicaSet whose name ends in the hash of its template
	kindReplicaSet  = "ReplicaSet"
	kindStatefulSet = "StatefulSet"
	kindPod         = "Pod"
)

// Workload names the workload of a pod, by its controller. An error is
// *Unprotectable.
func Workload(pod *v1.Pod) (namespace, workload string, err error) {
	id, err := identify(pod)
	return id.Namespace, id.Workload, err
}

func identify(pod *v1.Pod) (Identity, error) {
	if _, mirror := pod.Annotations[annotationMirror]; mirror {
		return Identity{}, refused(Unsupported, annotationField(annotationMirror), "a static pod needs no checkpoint; its manifest is on the node already")
	}
	id := Identity{Namespace: pod.Namespace, Workload: pod.Name, Kind: kindPod}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		switch owner.Kind {
		case kindDaemonSet:
			id.Workload, id.Kind = owner.Name, kindDaemonSet
		case kindStatefulSet:
			id.Kind = kindStatefulSet // its pods keep their names
		case kindReplicaSet:
			id.Workload, id.Kind = owner.Name, kindReplicaSet
			hash := pod.Labels["pod-template-hash"]
			if name, ok := strings.CutSuffix(owner.Name, "-"+hash); ok {
				id.Workload, id.Kind = name, kindDeployment
			}
		default:
			return Identity{}, refused(Unsupported, "metadata.ownerReferences", "pods of a %s have no lasting name; use a DaemonSet, Deployment, ReplicaSet or StatefulSet", owner.Kind)
		}
	}
	// The names become directories, and a client in front of a broken API
	// server must not choose which.
	if len(validation.IsDNS1123Label(id.Namespace)) > 0 {
		return Identity{}, refused(Unsupported, "metadata.namespace", "%q is no DNS label", id.Namespace)
	}
	if len(validation.IsDNS1123Subdomain(id.Workload)) > 0 {
		return Identity{}, refused(Unsupported, "metadata.name", "the workload's name %q is no DNS name", id.Workload)
	}
	return id, nil
}

// named reports whether the pod's name is the workload's, for all of its parents.
func (id Identity) named() bool {
	return id.Kind == kindPod || id.Kind == kindStatefulSet
}

// Asks reads the annotations of a sandbox: whether its pod asks to be protected,
// and under which lock; "" is none.
func Asks(annotations map[string]string) (lock string, asks bool) {
	return annotations[AnnotationLock], wanted(annotations)
}

// annotations are those of a generation, from which IdentityOf and FactsOf read.
func (id Identity) annotations(grace time.Duration, after []string) map[string]string {
	a := map[string]string{
		AnnotationCheckpointOf: id.Namespace + "/" + id.Workload,
		AnnotationKind:         id.Kind,
		AnnotationHandoffGrace: grace.String(),
	}
	if id.Lock != "" {
		a[AnnotationLock] = id.Lock
	}
	if len(after) > 0 {
		a[AnnotationAfter] = strings.Join(after, ",")
	}
	return a
}

// IdentityOf returns the identity of the workload whose generation holds the
// sanitized pod.
func IdentityOf(sanitized *v1.Pod) Identity {
	namespace, workload, _ := strings.Cut(sanitized.Annotations[AnnotationCheckpointOf], "/")
	return Identity{
		Namespace: namespace,
		Workload:  workload,
		Lock:      sanitized.Annotations[AnnotationLock],
		Kind:      sanitized.Annotations[AnnotationKind],
	}
}

// Matches reports whether a pod, as its sandbox in the runtime tells, is a
// parent of the workload. With a lock the lock's name decides, which no two
// workloads share. Else the pod's name does, also of a pod that asks for no
// protection, or names another lock: the controller may have made it after its
// template has changed, and a sandbox keeps the annotations of its creation. Only of
// a Deployment, whose pods' names others may have, it has to ask for protection.
func Matches(namespace, podName string, annotations map[string]string, w Identity) bool {
	_, ours := annotations[AnnotationCheckpointOf]
	if namespace != w.Namespace || annotations[annotationSource] != sourceAPI || ours {
		return false
	}
	lock, asks := Asks(annotations)
	if w.Lock != "" && asks && lock == w.Lock {
		return true
	}
	switch w.Kind {
	case kindDaemonSet, kindReplicaSet:
		return generatedFrom(w.Workload, podName)
	case kindDeployment:
		// Every way to part the name is tried, because a generated name is cut
		// where it would be too long.
		rest, ok := strings.CutPrefix(podName, w.Workload+"-")
		for i := 1; asks && ok && i <= len(rest) && i <= templateHashLen; i++ {
			if isRandom(rest[:i]) && generatedFrom(w.Workload+"-"+rest[:i], podName) {
				return true
			}
		}
		return false
	case kindStatefulSet, kindPod:
		return podName == w.Workload
	}
	return false
}

// How the API server generates names: a base that is cut to 58 bytes, then five
// random characters (k8s.io/apiserver v0.37.2, pkg/storage/names/generate.go).
// A template's hash has at most ten characters of the same alphabet
// (k8s.io/kubernetes v1.37.2, pkg/controller/controller_utils.go, ComputeHash).
const (
	randomLen       = 5
	generatedMax    = 63 - randomLen
	templateHashLen = 10
	randomAlphabet  = "bcdfghjklmnpqrstvwxz2456789"
)

func generatedFrom(owner, podName string) bool {
	base := owner + "-"
	base = base[:min(len(base), generatedMax)]
	suffix, ok := strings.CutPrefix(podName, base)
	return ok && len(suffix) == randomLen && isRandom(suffix)
}

func isRandom(s string) bool {
	return strings.Trim(s, randomAlphabet) == ""
}
