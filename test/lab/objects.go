package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// apply makes what the cluster needs before the DaemonSets.
func (l *Lab) apply(ctx context.Context, certs *pki) error {
	for _, p := range controlPlane {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: p.name, Namespace: systemSpace}, Data: map[string][]byte{}}
		for name, from := range p.files {
			secret.Data[name] = certs.files[from]
		}
		if err := l.create(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, systemSpace, secret); err != nil {
			return err
		}
	}
	// What an installer does: a kubelet may not give itself this label.
	label := map[string]any{"metadata": map[string]any{"labels": map[string]string{"node-role.kubernetes.io/control-plane": ""}}}
	if err := l.retry(ctx, http.MethodPatch, "/api/v1/nodes/"+l.options.Node, label, nil); err != nil {
		return fmt.Errorf("wait for the node to register: %w", err)
	}
	// Admission refuses pods without it, and a DaemonSet's next try may take long.
	if err := l.retry(ctx, http.MethodGet, "/api/v1/namespaces/"+systemSpace+"/serviceaccounts/default", nil, nil); err != nil {
		return fmt.Errorf("wait for the service account of %s: %w", systemSpace, err)
	}
	return nil
}

// applyDaemon makes pod-checkpointer, and waits until it has put lock-exec on the node.
func (l *Lab) applyDaemon(ctx context.Context) error {
	objects, err := l.objects("base/rbac.yaml")
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := l.create(ctx, object.GroupVersionKind(), object.GetNamespace(), object); err != nil {
			return err
		}
	}
	set, err := l.daemon()
	if err != nil {
		return err
	}
	if err := l.create(ctx, daemonSets, systemSpace, set); err != nil {
		return err
	}
	return poll(ctx, 50*time.Millisecond, func() error {
		_, err := os.Stat(filepath.Join(l.diskDir(), lockExec))
		return err
	})
}

var daemonSets = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}

// create makes an object, over and over until its namespace is there.
func (l *Lab) create(ctx context.Context, kind schema.GroupVersionKind, namespace string, object any) error {
	if err := l.retry(ctx, http.MethodPost, collection(kind, namespace), object, nil); err != nil {
		return fmt.Errorf("create %s: %w", kind.Kind, err)
	}
	return nil
}

// retry is call for what a new cluster does not have at once: it goes on while
// the answer is 404 or 5xx, or there is none.
func (l *Lab) retry(ctx context.Context, method, path string, in, out any) error {
	client, err := l.Admin()
	if err != nil {
		return err
	}
	var answer *StatusError
	err = poll(ctx, 50*time.Millisecond, func() error {
		err := call(ctx, client, method, apiURL+path, in, out)
		if errors.As(err, &answer) && answer.Code != http.StatusNotFound && answer.Code < 500 {
			return nil
		}
		answer = nil
		return err
	})
	if answer != nil {
		return answer
	}
	return err
}
