package api

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
)

// Owner is the controller of a pod, as the pod names it.
type Owner struct{ Namespace, Kind, Name, UID string }

// OwnerSpec is what the API server said of an Owner. It is unknown, and nothing
// else is set, where Err is; that matches the same errors as View's.
type OwnerSpec struct {
	Found    bool   // there is one of this name
	UID      string // of the one found: another than the Owner's means that the pod's is gone
	MaxSurge string // how many pods a rolling update may add on a node that has one: "0", "1", "25%"; "" if nothing rolls
	Err      error
}

// OwnerOf returns the controller of a pod if it is of a kind that a View holds:
// a DaemonSet.
func OwnerOf(pod *corev1.Pod) (Owner, bool) {
	ref := metav1.GetControllerOf(pod)
	if ref == nil || ref.Kind != "DaemonSet" || !strings.HasPrefix(ref.APIVersion, "apps/") {
		return Owner{}, false
	}
	return Owner{pod.Namespace, ref.Kind, ref.Name, string(ref.UID)}, true
}

// owner asks for the few fields that are wanted of a DaemonSet, without the Go
// types of its group, which would weigh more than this package.
func (s *server) owner(ctx context.Context, o Owner) OwnerSpec {
	what := call{"get", "daemonsets", o.Namespace, o.Name}
	if len(rest.IsValidPathSegmentName(o.Name)) > 0 {
		// An API server takes any name in an owner reference, and this one would ask for another path.
		return OwnerSpec{Err: fmt.Errorf("%w: no object can have this name: %q", ErrAnswer, o.Name)}
	}
	var found struct {
		Kind     string
		Metadata struct{ Namespace, Name, UID string }
		Spec     struct {
			UpdateStrategy struct {
				RollingUpdate struct{ MaxSurge *intstr.IntOrString }
			}
		}
	}
	request := s.Get().AbsPath("/apis/apps/v1/namespaces", o.Namespace, "daemonsets", o.Name)
	err := askJSON(ctx, s, request, what, &found)
	switch meta := found.Metadata; {
	case errors.Is(err, errNotFound):
		return OwnerSpec{}
	case err != nil:
		return OwnerSpec{Err: err}
	case found.Kind != o.Kind || meta.Namespace != o.Namespace || meta.Name != o.Name || meta.UID == "":
		return OwnerSpec{Err: fmt.Errorf("%s: %w: it is another object", what, ErrAnswer)}
	}
	spec := OwnerSpec{Found: true, UID: found.Metadata.UID}
	if surge := found.Spec.UpdateStrategy.RollingUpdate.MaxSurge; surge != nil {
		spec.MaxSurge = surge.String()
	}
	return spec
}
