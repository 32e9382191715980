package apitest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Object is what a Server holds: a Pod, Secret, ConfigMap, ServiceAccount, Node,
// Namespace or DaemonSet.
type Object interface {
	runtime.Object
	metav1.Object
}

// state is what etcd would hold.
type state struct {
	revision int64
	uids     int
	objects  map[string]Object // by request path

	events    []event // what has happened since oldest
	oldest    int64
	bookmarks int           // sent so far
	ended     int           // how often all watches were
	told      chan struct{} // closed and replaced when a watch has something to tell
}

func newState() state {
	s := state{revision: 1000, objects: make(map[string]Object), told: make(chan struct{})}
	s.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}})
	return s
}

// Put creates or replaces objects. It sets their resourceVersion and, where it
// is empty, their UID.
func (s *Server) Put(objects ...Object) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		require.True(s.t, s.state.put(o), "no such kind here: %T", o)
	}
}

// Delete removes objects by kind, namespace and name. An absent one is no error.
func (s *Server) Delete(objects ...Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		where := path(o)
		old := s.state.objects[where]
		if old == nil {
			continue
		}
		s.state.revision++
		delete(s.state.objects, where)
		s.state.happened(watch.Deleted, where, old)
	}
}

// Revision returns the newest resourceVersion.
func (s *Server) Revision() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strconv.FormatInt(s.state.revision, 10)
}

// Rewind makes revision the newest resourceVersion, as an etcd that was
// restored from a backup has it.
func (s *Server) Rewind(revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.revision = revision
}

// SetKubeSystemUID makes this another cluster.
func (s *Server) SetKubeSystemUID(uid types.UID) {
	s.t.Helper()
	s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}})
}

func (s *state) put(o Object) bool {
	where := path(o)
	if where == "" {
		return false
	}
	o = o.DeepCopyObject().(Object)
	if o.GetUID() == "" {
		s.uids++
		o.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.uids)))
	}
	s.revision++
	o.SetResourceVersion(strconv.FormatInt(s.revision, 10))
	kind := watch.Added
	if s.objects[where] != nil {
		kind = watch.Modified
	}
	s.objects[where] = o
	s.happened(kind, where, o)
	return true
}

// pods returns those that match, in the order of their names, and the
// resourceVersion that the list has.
func (s *state) pods(namespace string, match func(*corev1.Pod) bool) ([]corev1.Pod, string) {
	var found []corev1.Pod
	for _, where := range slices.Sorted(maps.Keys(s.objects)) {
		pod, ok := s.objects[where].(*corev1.Pod)
		if ok && (namespace == "" || pod.Namespace == namespace) && match(pod) {
			found = append(found, *pod)
		}
	}
	return found, strconv.FormatInt(s.revision, 10)
}

func path(o Object) string {
	in := "/api/v1/namespaces/" + o.GetNamespace()
	switch o.(type) {
	case *corev1.Pod:
		return in + "/pods/" + o.GetName()
	case *corev1.Secret:
		return in + "/secrets/" + o.GetName()
	case *corev1.ConfigMap:
		return in + "/configmaps/" + o.GetName()
	case *corev1.ServiceAccount:
		return in + "/serviceaccounts/" + o.GetName()
	case *corev1.Node:
		return "/api/v1/nodes/" + o.GetName()
	case *corev1.Namespace:
		return "/api/v1/namespaces/" + o.GetName()
	case *appsv1.DaemonSet:
		return "/apis/apps/v1/namespaces/" + o.GetNamespace() + "/daemonsets/" + o.GetName()
	}
	return ""
}
