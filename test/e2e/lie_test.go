//go:build e2e

package e2e

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestKubeletPodsLie: the parent of a single master is deleted. It ends, and with
// it the API server to which the kubelet would report that. So the kubelet's /pods
// go on to tell of a parent that runs and is ready, as long as there is no API
// server. A daemon that believed it would wait for ever. The runtime knows better,
// and the checkpoint starts.
func TestKubeletPodsLie(t *testing.T) {
	s := begin(t)
	runtime, uid := s.runtime(), s.eyes.sight().serves.uid
	s.await(eventually, "the parent to be ready by the kubelet's /pods", func(sight) bool { return s.kubeletSaysReady(uid) })
	s.kubectl("delete", "pod", "--namespace=kube-system", "--selector=k8s-app=kube-apiserver", "--wait=false")

	// Asked before and after the kubelet, the runtime vouches for the time between.
	lies := func() bool { return s.ended(runtime, uid) && s.kubeletSaysReady(uid) && s.ended(runtime, uid) }
	s.await(soon, "the kubelet to tell of a parent that does not run", func(sight) bool { return lies() })
	s.timeline.add(time.Now(), "kubelet's /pods: the parent runs and is ready; runtime: it has ended")

	s.await(soon, "the daemon to start the checkpoint", func(now sight) bool { return now.manifest != "" })
	require.True(s, lies(), "the kubelet still says that the parent runs, now that the daemon has acted")
	s.await(soon, "the API, out of the checkpoint", byCheckpoint)
	s.refreshClients()
	s.awaitSteady()
}

// kubeletSaysReady tells whether the kubelet's /pods has the pod running and ready.
func (s *scene) kubeletSaysReady(uid string) bool {
	var pods corev1.PodList
	client := &http.Client{Transport: &http.Transport{DialContext: s.lab.Dial, DisableKeepAlives: true}}
	if ask(cluster.ctx, client, "http://127.0.0.1:10255/pods", &pods) != nil {
		return false
	}
	for _, pod := range pods.Items {
		if string(pod.UID) == uid {
			return pod.Status.Phase == corev1.PodRunning && ready(pod)
		}
	}
	return false
}

func ready(pod corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// runtime is a client of the node's runtime, until the next power cut.
func (s *scene) runtime() *cri.Client {
	s.Helper()
	socket, err := s.lab.CRISocket()
	require.NoError(s, err)
	client, err := cri.New(socket)
	require.NoError(s, err)
	s.Cleanup(func() { _ = client.Close() })
	return client
}

// ended tells whether the runtime says that no container of the pod runs.
func (s *scene) ended(runtime *cri.Client, uid string) bool {
	ctx, cancel := context.WithTimeout(cluster.ctx, time.Second)
	defer cancel()
	pods, err := runtime.Pods(ctx)
	if err != nil {
		return false
	}
	for _, pod := range pods {
		for _, c := range pod.Containers {
			if pod.UID == uid && c.State != cri.Exited {
				return false
			}
		}
	}
	return true
}
