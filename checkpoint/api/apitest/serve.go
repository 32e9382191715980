package apitest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(appsv1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme)
}()

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if answer := s.begin(r); answer != nil {
		answer(w, r)
		return
	}
	where, account := located(r.URL.Path), located(strings.TrimSuffix(r.URL.Path, "/token"))
	switch {
	case r.URL.Path == "/readyz" || r.URL.Path == "/livez":
		_, _ = fmt.Fprint(w, "ok")
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/token") && account.kind == "serviceaccounts":
		s.token(w, r, account)
	case r.Method != http.MethodGet || where.kind == "":
		refuse(w, r, http.StatusNotFound)
	case where.name == "" && r.URL.Query().Get("watch") == "true":
		s.watch(w, r, where)
	case where.name == "" && where.kind == "pods":
		s.list(w, r, where)
	case where.name == "":
		refuse(w, r, http.StatusForbidden) // nobody here has a reason to list these
	default:
		s.get(w, r, where)
	}
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, where location) {
	s.mu.Lock()
	object := s.state.objects[r.URL.Path]
	s.mu.Unlock()
	if object == nil {
		send(w, r, http.StatusNotFound, status(apierrors.NewNotFound(where.group(), where.name)))
		return
	}
	send(w, r, http.StatusOK, object)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, where location) {
	selector, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		send(w, r, http.StatusBadRequest, status(apierrors.NewBadRequest(err.Error())))
		return
	}
	s.mu.Lock()
	pods, version := s.state.pods(where.namespace, func(p *corev1.Pod) bool {
		return selector.Matches(selected(p))
	})
	size := s.pageSize
	s.mu.Unlock()

	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	list.Items = pods[min(from, len(pods)):]
	if size > 0 && len(list.Items) > size {
		list.Items, list.Continue = list.Items[:size], strconv.Itoa(from+size)
	}
	send(w, r, http.StatusOK, list)
}

// location is what a request path names. kind is empty for what is not served
// here, name for a list.
type location struct{ namespace, kind, name string }

func (l location) group() schema.GroupResource {
	if l.kind == "daemonsets" {
		return schema.GroupResource{Group: appsv1.GroupName, Resource: l.kind}
	}
	return schema.GroupResource{Resource: l.kind}
}

func located(path string) location {
	rest, core := strings.CutPrefix(path, "/api/v1/")
	rest, apps := strings.CutPrefix(rest, "/apis/apps/v1/")
	kinds := []string{"pods", "secrets", "configmaps", "serviceaccounts"}
	if apps {
		kinds = []string{"daemonsets"}
	}
	parts := strings.Split(rest, "/")
	switch {
	case !core && !apps:
		return location{}
	case core && len(parts) == 1 && parts[0] == "pods":
		return location{kind: "pods"}
	case core && len(parts) == 2 && (parts[0] == "nodes" || parts[0] == "namespaces"):
		return location{kind: parts[0], name: parts[1]}
	case len(parts) == 3 && parts[0] == "namespaces" && slices.Contains(kinds, parts[2]):
		return location{namespace: parts[1], kind: parts[2]}
	case len(parts) == 4 && parts[0] == "namespaces" && slices.Contains(kinds, parts[2]):
		return location{namespace: parts[1], kind: parts[2], name: parts[3]}
	}
	return location{}
}

// refuse words a status as kube-apiserver does: some are a Status object, some
// plain text (apiserver/pkg/endpoints/handlers/responsewriters, v0.37).
func refuse(w http.ResponseWriter, r *http.Request, code int) {
	where := located(r.URL.Path)
	switch code {
	case http.StatusUnauthorized:
		send(w, r, code, status(apierrors.NewUnauthorized("Unauthorized")))
	case http.StatusForbidden:
		why := fmt.Sprintf("User %q cannot get resource %q in API group %q", "apitest", where.kind, "")
		send(w, r, code, status(apierrors.NewForbidden(where.group(), where.name, errors.New(why))))
	case http.StatusNotFound:
		http.Error(w, "404 page not found", code)
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Too many requests, please try again later.", code)
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
		send(w, r, code, status(apierrors.NewServiceUnavailable("apitest is not ready")))
	default:
		send(w, r, code, status(apierrors.NewGenericServerResponse(code, r.Method, where.group(), where.name, "apitest", 0, false)))
	}
}

func status(err *apierrors.StatusError) *metav1.Status { return &err.ErrStatus }

// send writes object in the first form that the client accepts and that this knows.
func send(w http.ResponseWriter, r *http.Request, code int, object runtime.Object) {
	form := runtime.ContentTypeJSON
	if strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		form = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), form)
	data, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, schema.GroupVersions{corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion}), object)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", form)
	w.WriteHeader(code)
	_, _ = w.Write(data)
}
