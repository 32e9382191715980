//go:build e2e

package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestRestarts: the kubelet alone is started anew, and the runtime alone, while
// all is well and while checkpoints serve. Neither ends a container, so nobody who
// serves may lose the lock by it, and nothing of ours may start or end for it.
func TestRestarts(t *testing.T) {
	for _, component := range []lab.Component{lab.Kubelet, lab.Containerd} {
		t.Run(string(component)+" at rest", func(t *testing.T) {
			s := begin(t)
			before, holders := s.eyes.sight(), s.holders()
			s.restart(component)
			s.undisturbed(before, 5*time.Second)
			s.awaitSteady()
			require.Equal(s, holders, s.holders(), "who holds the locks")
			require.Empty(s, s.eyes.awaySince(s.begun), "the API was away")
		})
		t.Run(string(component)+" while a checkpoint serves", func(t *testing.T) {
			s := begin(t)
			s.cutPower()
			before := s.await(soon, "the API, out of the checkpoint", byCheckpoint)
			answered := time.Now()
			s.restart(component)
			s.undisturbed(before, 2*time.Second)
			s.awaitSteady()
			require.Len(s, s.eyes.awaySince(answered), 1, "outages: the one of the handoff")
		})
	}
}

// restart ends a component in order and starts it again.
func (s *scene) restart(component lab.Component) {
	s.Helper()
	require.NoError(s, s.lab.Stop(component))
	require.NoError(s, s.lab.Start(cluster.ctx, component))
	s.timeline.add(time.Now(), "%s started anew", component)
}

// undisturbed asserts that for a while the same process serves, and by the same
// manifest.
func (s *scene) undisturbed(before sight, long time.Duration) {
	s.Helper()
	for end := time.Now().Add(long); time.Now().Before(end); s.rest("nothing") {
		now := s.eyes.sight()
		require.Equal(s, before.serves, now.serves, "who holds the lock")
		require.Equal(s, before.manifest, now.manifest, "activation that has a manifest")
	}
}

// TestOrderlyReboot: the node shuts down as a kubelet with a grace for it does
// (k8s.io/kubernetes@v1.37.2 pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go):
// each pod gets SIGTERM, and is reported Failed as long as there is an API server to
// take it. After the boot the kubelet will not run these pods any more; others have
// to take their place, which the checkpoints of controller manager and scheduler
// make.
func TestOrderlyReboot(t *testing.T) {
	s := begin(t)
	old := map[string]bool{}
	for _, name := range controlPlane {
		for _, pod := range s.pods(name) {
			old[string(pod.UID)] = true
		}
	}
	require.Len(s, old, len(controlPlane))

	s.shutDown()
	require.NoError(s, s.lab.Boot(cluster.ctx))
	s.timeline.add(time.Now(), "booted")
	s.await(soon, "the API, out of the checkpoint", byCheckpoint)
	for _, name := range controlPlane {
		for _, pod := range s.pods(name) {
			require.True(s, !old[string(pod.UID)] || pod.Status.Phase == corev1.PodFailed, "%s was reported %s", pod.Name, pod.Status.Phase)
		}
	}
	s.awaitSteady()
	for _, name := range controlPlane {
		pods := s.pods(name)
		require.Len(s, pods, 1, "pods of "+name)
		require.False(s, old[string(pods[0].UID)], "%s is a new pod", pods[0].Name)
	}
}

// shutDown ends the control plane's pods, clients first, then kubelet, runtime and
// etcd, and last the power.
func (s *scene) shutDown() {
	s.Helper()
	s.timeline.powerCut()
	require.NoError(s, s.lab.Stop(lab.Kubelet)) // or it would start again what ends
	runtime := s.runtime()
	stop := func(prefix string) {
		for _, pod := range s.eyes.sight().pods {
			for _, c := range pod.Containers {
				if strings.HasPrefix(pod.Name, prefix) && anyRuns(pod) {
					require.NoError(s, runtime.StopContainer(cluster.ctx, c.ID, time.Second))
				}
			}
		}
		s.timeline.add(time.Now(), "SIGTERM to %s", prefix)
	}
	stop("kube-controller-manager") // which would replace what is Failed
	stop("kube-scheduler")
	failed, err := json.Marshal(map[string]any{"status": map[string]string{
		"phase": "Failed", "reason": "Terminated", "message": "Pod was terminated in response to imminent node shutdown.",
	}})
	require.NoError(s, err)
	for _, name := range controlPlane {
		for _, pod := range s.pods(name) {
			s.kubectl("patch", "pod", pod.Name, "--namespace=kube-system", "--subresource=status", "--type=merge", "--patch="+string(failed))
		}
	}
	s.timeline.add(time.Now(), "pods reported Failed")
	stop("pod-checkpointer")
	stop("kube-apiserver")
	for _, component := range []lab.Component{lab.Containerd, lab.Etcd} {
		require.NoError(s, s.lab.Stop(component))
	}
	require.NoError(s, s.lab.PowerCut(cluster.ctx))
	s.eyes.change(func(now *sight) { *now = sight{manifest: now.manifest} }) // the disk stays
	s.timeline.add(time.Now(), "power off")
}
