//go:build e2e

package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
)

const (
	deployment = "/apis/apps/v1/namespaces/default/deployments/crowd"
	// crowding is for all pods of a crowd to run.
	crowding = 10 * time.Minute
	atOnce   = 10 // of them are started
)

// idle is a pod that does nothing, on the host's network as the control plane is:
// what the network's plugins cost is not asked for.
func idle(name string, annotations map[string]string) (metav1.ObjectMeta, *metav1.LabelSelector, corev1.PodTemplateSpec) {
	labels := map[string]string{"bench": name}
	return metav1.ObjectMeta{Name: name}, &metav1.LabelSelector{MatchLabels: labels}, corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
		Spec: corev1.PodSpec{
			HostNetwork: true, AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(1)),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "pause", Image: "lab.local/pause:1", ImagePullPolicy: corev1.PullNever,
			}},
		},
	}
}

// protectMore adds two workloads without a lock to the control plane's, and
// names all five.
func protectMore(ctx context.Context, l *lab.Lab) ([]string, error) {
	workloads := append([]string(nil), controlPlane...)
	for _, name := range []string{"idle-1", "idle-2"} {
		var set appsv1.DaemonSet
		set.ObjectMeta, set.Spec.Selector, set.Spec.Template = idle(name, map[string]string{"pod-checkpointer.io/checkpoint": "true"})
		if err := l.Call(ctx, http.MethodPost, "/apis/apps/v1/namespaces/kube-system/daemonsets", set, nil); err != nil {
			return nil, err
		}
		workloads = append(workloads, "kube-system/"+name)
	}
	return workloads, protected(ctx, l, time.Now(), workloads...)
}

// crowd waits until so many pods run on the node, those of kube-system among
// them. They come a few at a time, or those who start them would keep the control
// plane from its work.
func crowd(ctx context.Context, l *lab.Lab, pods int) error {
	var system corev1.PodList
	if err := l.Call(ctx, http.MethodGet, "/api/v1/namespaces/kube-system/pods", nil, &system); err != nil {
		return err
	}
	var set appsv1.Deployment
	set.ObjectMeta, set.Spec.Selector, set.Spec.Template = idle("crowd", nil)
	set.Spec.Replicas = new(int32(0))
	var refused *lab.StatusError
	err := l.Call(ctx, http.MethodPost, strings.TrimSuffix(deployment, "/crowd"), set, nil)
	if err != nil && (!errors.As(err, &refused) || refused.Code != http.StatusConflict) { // else it is there
		return err
	}
	if err := l.Call(ctx, http.MethodGet, deployment, nil, &set); err != nil {
		return err
	}
	begin, said := time.Now(), time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, crowding, fmt.Errorf("no %d pods within %s", pods, crowding))
	defer cancel()
	wanted := int32(pods - len(system.Items))
	for n := *set.Spec.Replicas; n < wanted; {
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			say("%d of %d pods run after %s", int(n)+len(system.Items), pods, time.Since(begin).Round(time.Second))
		}
		n = min(n+atOnce, wanted)
		if err := scale(ctx, l, n); err != nil {
			return err
		}
	}
	say("%d pods run after %s", pods, time.Since(begin).Round(time.Second))
	return nil
}

// scale waits until the crowd has so many pods, which run.
func scale(ctx context.Context, l *lab.Lab, pods int32) error {
	if err := l.Call(ctx, http.MethodPatch, deployment, map[string]any{"spec": map[string]any{"replicas": pods}}, nil); err != nil {
		return err
	}
	return awaitEvery(ctx, 200*time.Millisecond, time.Minute, "the pods run", func() bool {
		var set appsv1.Deployment
		return l.Call(ctx, http.MethodGet, deployment, nil, &set) == nil && set.Status.ReadyReplicas == pods
	})
}
