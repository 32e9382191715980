package api

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// listPods returns every pod of one namespace that is bound to node, from a
// quorum read: with no resourceVersion in the request, no API server may answer
// from a cache that lags behind etcd. It sets no limit, but follows a server
// that pages all the same, since half a list says that pods are gone.
func listPods(ctx context.Context, s *server, namespace, node string) (pods []corev1.Pod, version string, err error) {
	what := call{"list", "pods", namespace, ""}
	request := func() *rest.Request {
		return s.Get().Namespace(namespace).Resource("pods").
			Param("fieldSelector", fields.OneTermEqualSelector("spec.nodeName", node).String())
	}
	page, err := ask[*corev1.PodList](ctx, s, request(), what)
	for err == nil {
		for _, pod := range page.Items {
			if pod.Spec.NodeName != node || pod.Namespace != namespace {
				return nil, "", fmt.Errorf("%s: %w: it has %s/%s of node %q", what, ErrAnswer, pod.Namespace, pod.Name, pod.Spec.NodeName)
			}
		}
		pods = append(pods, page.Items...)
		if page.Continue == "" {
			return pods, page.ResourceVersion, nil
		}
		page, err = ask[*corev1.PodList](ctx, s, request().Param("continue", page.Continue), what)
	}
	return nil, "", err
}

// get returns one object by name, or errNotFound.
func get[T interface {
	runtime.Object
	metav1.Object
}](ctx context.Context, s *server, resource, namespace, name string) (T, error) {
	what := call{"get", resource, namespace, name}
	request := s.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name(name)
	object, err := ask[T](ctx, s, request, what)
	if err == nil && (object.GetName() != name || object.GetNamespace() != namespace || object.GetUID() == "") {
		err = fmt.Errorf("%s: %w: it is another object", what, ErrAnswer)
	}
	return object, err
}

// ask returns the whole answer to one request. An answer of another type is an
// error: client-go's Into would leave an empty list.
func ask[T runtime.Object](ctx context.Context, s *server, request *rest.Request, what call) (T, error) {
	var none T
	var contentType string
	result := request.MaxRetries(0).Do(ctx).ContentType(&contentType)
	if err := result.Error(); err != nil {
		return none, s.explain(ctx, what, err)
	}
	object, err := result.Get()
	answer, ok := object.(T)
	if err != nil || !ok {
		// Without the cause, because a decoder's error quotes what it could not read, and that may be a Secret.
		return none, fmt.Errorf("%s: %w: content type %q", what, ErrAnswer, contentType)
	}
	return answer, nil
}

// askJSON is ask for a kind that is not in codecs: it fills in the fields of into.
func askJSON(ctx context.Context, s *server, request *rest.Request, what call, into any) error {
	result := request.SetHeader("Accept", runtime.ContentTypeJSON).MaxRetries(0).Do(ctx)
	if err := result.Error(); err != nil {
		return s.explain(ctx, what, err)
	}
	body, err := result.Raw()
	if err != nil || json.Unmarshal(body, into) != nil {
		return fmt.Errorf("%s: %w", what, ErrAnswer) // without the cause, as in ask
	}
	return nil
}
