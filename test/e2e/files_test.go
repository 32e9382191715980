//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// dataDir is what the odd workload says that it keeps.
const dataDir = "/var/lib/odd"

// TestFiles: a checkpoint that serves gets a Secret that changes, and goes on; and none
// starts on a data directory that was lost.
func TestFiles(t *testing.T) {
	s := begin(t)
	s.Cleanup(func() { // of a scenario that fails half-way
		_ = s.lab.Start(cluster.ctx, lab.Kubelet)
		_, _ = s.lab.Kubectl(cluster.ctx, "delete", "daemonset,secret", "--namespace=kube-system", odd, "--ignore-not-found")
	})
	before := s.guarded()
	require.NoError(s, os.MkdirAll(s.path(dataDir), 0o700))
	kept := filepath.Join(s.path(dataDir), "kept")
	require.NoError(s, os.WriteFile(kept, []byte("kept"), 0o600))
	s.kubectl("create", "secret", "generic", odd, "--namespace=kube-system", "--from-literal=key=one")
	s.applySet(withFiles(pausing(odd)))
	s.awaitProved()

	t.Run("follow", func(t *testing.T) {
		s := s.in(t)
		s.awayWithParent()
		require.NoError(s, s.lab.Stop(lab.Kubelet)) // it would bring the parent back
		holder := s.holderOfOdd()
		key := fmt.Sprintf("/proc/%d/root/secret/key", holder.PID)
		require.Equal(s, "one", contents(s, key))
		was := s.eyes.sight().workload("kube-system/" + odd)

		s.kubectl("patch", "secret", odd, "--namespace=kube-system", "--patch", `{"stringData": {"key": "two"}}`)
		changed := time.Now()
		s.await(soon, "the files to follow", func(now sight) bool {
			w := now.workload("kube-system/" + odd)
			return w.State == checkpoint.Serving && w.Generation == was.Generation+1 && w.Files == w.Generation
		})
		s.timeline.add(time.Now(), "files followed the Secret after %.1f s", time.Since(changed).Seconds())
		require.Equal(s, "two", contents(s, key), "as its process sees it")
		require.Equal(s, holder, s.holderOfOdd(), "it goes on")
		require.NoError(s, s.lab.Start(cluster.ctx, lab.Kubelet))
		s.awaitProved()
	})
	t.Run("must be there", func(t *testing.T) {
		s := s.in(t)
		require.NoError(s, s.lab.Stop(lab.Kubelet))
		away := s.path(dataDir + ".away")
		require.NoError(s, os.Rename(kept, away))
		require.NoError(s, lock.End(cluster.ctx, "/proc", s.holderOfOdd(), 0))
		s.await(soon, "the loss to be named", func(now sight) bool {
			return now.finding("kube-system/odd: DataMissing: ") != ""
		})
		s.timeline.add(time.Now(), "named: %s", s.eyes.sight().finding("kube-system/odd: DataMissing: "))
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); s.rest("nothing") {
			require.Empty(s, s.manifestsOf(odd), "a checkpoint was started on an empty directory")
		}
		require.NoError(s, os.Rename(away, kept))
		s.await(soon, "a checkpoint, now that the data is back", func(sight) bool { return len(s.manifestsOf(odd)) == 1 })
		require.NoError(s, s.lab.Start(cluster.ctx, lab.Kubelet))
		s.awaitOdd()
	})
	s.unprotect(before)
	s.forget(before)
	s.kubectl("delete", "secret", odd, "--namespace=kube-system")
	s.awaitSteady()
}

// withFiles mounts a Secret and a data directory of the host.
func withFiles(set *appsv1.DaemonSet) *appsv1.DaemonSet {
	template := &set.Spec.Template
	template.Annotations["pod-checkpointer.io/data"] = dataDir
	template.Spec.Volumes = append(template.Spec.Volumes,
		corev1.Volume{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: odd}}},
		corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dataDir}}})
	container := &template.Spec.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts,
		corev1.VolumeMount{Name: "secret", MountPath: "/secret"}, corev1.VolumeMount{Name: "data", MountPath: dataDir})
	return set
}

// awaitProved waits until the odd parent serves and its generation is known to be good.
func (s *scene) awaitProved() {
	s.Helper()
	s.awaitOdd()
	s.await(soon, odd+" to be known to be good", func(now sight) bool {
		w := now.workload("kube-system/" + odd)
		return w.Generation > 0 && w.KnownGood == w.Generation
	})
}

// awayWithParent ends the odd parent until its checkpoint serves and is ready: the
// kubelet waits ever longer before it starts it again.
func (s *scene) awayWithParent() {
	s.Helper()
	s.await(eventually, "its checkpoint to serve", func(now sight) bool {
		state, err := lock.Inspect("/proc", s.path(lockDir+"/"+odd+".lock"))
		if err != nil || state.Holder == nil {
			return false // between the two
		}
		holder, _ := partiesOf(state)
		if holder.role == asParent {
			require.NoError(s, lock.End(cluster.ctx, "/proc", *state.Holder, 0))
		}
		return holder.role == asCheckpoint && now.workload("kube-system/"+odd).State == checkpoint.Serving
	})
}

func (s *scene) holderOfOdd() lock.Process {
	s.Helper()
	state, err := lock.Inspect("/proc", s.path(lockDir+"/"+odd+".lock"))
	require.NoError(s, err)
	require.NotNil(s, state.Holder)
	return *state.Holder
}

func contents(s *scene, path string) string {
	s.Helper()
	text, err := os.ReadFile(path)
	require.NoError(s, err)
	return string(text)
}
