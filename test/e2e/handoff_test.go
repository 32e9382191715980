//go:build e2e

package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestWaiterIsNotReady: as long as the checkpoint serves, the parent waits for
// the lock. Its container runs, and on the host's network its port answers. All
// the same the API never calls it ready, before it has the lock.
func TestWaiterIsNotReady(t *testing.T) {
	s := begin(t)
	s.cutPower()
	waits := func(now sight) bool {
		return byCheckpoint(now) && len(now.waiters) > 0 && now.waiters[0].role == asParent
	}
	waiter := s.await(eventually, "the parent to wait behind the checkpoint", waits).waiters[0]

	shown := 0
	for waits(s.eyes.sight()) {
		pod := s.parent(waiter.uid)
		if waits(s.eyes.sight()) && hasContainer(pod, waiter.container) {
			shown++
			require.False(s, ready(pod), "the API calls a parent ready that waits")
		}
		s.rest("the handoff")
	}
	require.NotZero(s, shown, "answers of the API about the waiting container, before it had the lock")
	s.timeline.add(time.Now(), "the API showed the waiting parent %d times: running, not ready", shown)

	s.awaitSteady()
	s.await(eventually, "the parent to be ready by the API", func(sight) bool { return ready(s.parent(waiter.uid)) })
}

// parent is the API server's pod of that UID, empty if the API does not say.
func (s *scene) parent(uid string) corev1.Pod {
	s.Helper()
	admin, err := s.lab.Admin()
	require.NoError(s, err)
	var pods corev1.PodList
	if ask(cluster.ctx, admin, lab.APIURL+"/api/v1/namespaces/kube-system/pods?labelSelector=k8s-app%3Dkube-apiserver", &pods) == nil {
		for _, pod := range pods.Items {
			if string(pod.UID) == uid {
				return pod
			}
		}
	}
	return corev1.Pod{}
}

// hasContainer tells whether the API knows that this very container runs: until
// the kubelet has told it, it shows the one from before the power cut.
func hasContainer(pod corev1.Pod, id string) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil && strings.HasSuffix(c.ContainerID, "://"+id)
	})
}

// TestSleepNeverCompletesHandoff: the new parent takes the lock and then does
// nothing. It runs, under the right name, and is never ready. The checkpoint
// takes its place again, and gives it up only for a parent that works.
func TestSleepNeverCompletesHandoff(t *testing.T) {
	s := begin(t)
	image, command := s.parentCommand()
	sleep := append(slices.Clone(command[:slices.Index(command, "--")+1]), "/pause")
	s.setParent(pauseImage, sleep)
	s.await(soon, "the API, out of the checkpoint", byCheckpoint)
	s.refreshClients()

	s.await(eventually, "the parent that sleeps to have the lock", func(now sight) bool { return now.serves.role == asParent })
	began := time.Now()
	s.await(handoffTimeout+soon, "the checkpoint to serve again", byCheckpoint)
	away := time.Since(began)
	s.timeline.add(time.Now(), "the failed handoff took the API away for %.1f s", away.Seconds())
	require.Less(s, away, handoffTimeout+30*time.Second)
	s.setParent(image, command)
	s.refreshClients()
	s.awaitSteady()

	s.happened("state Serving", "state HandingOff", "state RollingBack", "the parent failed", "parent stopped",
		"state Serving", "state HandingOff", "the handoff is verified", "state Protected")
}

// parentCommand is what the DaemonSet runs.
func (s *scene) parentCommand() (image string, command []string) {
	s.Helper()
	text := s.kubectl("get", "daemonset", "kube-apiserver", "--namespace=kube-system", "--output=jsonpath={.spec.template.spec.containers[0]}")
	var container corev1.Container
	require.NoError(s, json.Unmarshal([]byte(text), &container))
	return container.Image, container.Command
}

// setParent is a rolling update to another program; the probes stay.
func (s *scene) setParent(image string, command []string) {
	s.Helper()
	type set struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	container := "/spec/template/spec/containers/0/"
	patch, err := json.Marshal([]set{{"replace", container + "image", image}, {"replace", container + "command", command}})
	require.NoError(s, err)
	s.kubectl("patch", "daemonset", "kube-apiserver", "--namespace=kube-system", "--type=json", "--patch="+string(patch))
	s.timeline.add(time.Now(), "DaemonSet: the parent is to run %s", command[slices.Index(command, "--")+1])
}

// happened asserts that the daemon told of all of these about the API server in
// this scenario, in this order.
func (s *scene) happened(want ...string) {
	s.Helper()
	var got []string
	if status := s.eyes.sight().status; status != nil {
		for _, event := range status.Events {
			if event.At.After(s.begun) && event.Workload == workload {
				got = append(got, event.What)
			}
		}
	}
	rest := got
	for _, what := range want {
		i := slices.Index(rest, what)
		require.GreaterOrEqual(s, i, 0, "%q in its turn; the daemon told of %q", what, got)
		rest = rest[i+1:]
	}
}
