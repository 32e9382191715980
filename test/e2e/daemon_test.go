//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/lock"
	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

const (
	writersLock = "/var/lib/pod-checkpointer/lock"
	staticCopy  = "pod-checkpointer.json"
	maxKills    = 8
)

// TestDaemonIsUpgraded: the DaemonSet gets another image, and then the one before.
// Each time its new pod leads, the static copy follows, and nothing that is protected
// notices.
func TestDaemonIsUpgraded(t *testing.T) {
	s := begin(t)
	before := s.holders()
	old := s.copyImage()
	next := old + "-next"
	_, err := s.lab.Exec(cluster.ctx, lab.ContainerdCommand("images", "tag", old, next)...)
	require.NoError(s, err)
	for _, image := range []string{next, old} {
		led := s.leader()
		s.kubectl("set", "image", "daemonset/pod-checkpointer", "*="+image, "--namespace=kube-system")
		s.timeline.add(time.Now(), "DaemonSet: the daemon's image is to be %s", image)
		s.await(eventually, "a new pod of the DaemonSet to lead", func(sight) bool {
			now := s.leader()
			return now.role == asParent && now.uid != led.uid
		})
		s.timeline.add(time.Now(), "its new pod leads")
		s.await(eventually, "the static copy to follow", func(now sight) bool { return s.copyImage() == image && s.copyRuns(now, image) })
		s.timeline.add(time.Now(), "the static copy runs the same image")
		s.awaitSteady()
		require.Equal(s, before, s.holders(), "who holds the locks")
	}
	require.Zero(s, s.timeline.times(manifestWritten), "starts of the API server's checkpoint")
	require.Empty(s, s.eyes.awaySince(s.begun), "the API was away")
}

// TestDaemonSetIsDeleted: somebody deletes the daemon's DaemonSet. Its static copy
// leads in the same instant, with credentials of its own, and goes on to protect:
// what changes is saved, and a power cut is survived. The DaemonSet made again leads
// again.
func TestDaemonSetIsDeleted(t *testing.T) {
	s := begin(t)
	set := s.daemonSet("pod-checkpointer")
	s.kubectl("delete", "daemonset", "pod-checkpointer", "--namespace=kube-system")
	s.await(soon, "the static copy to lead", func(sight) bool { return s.leader().role == asCheckpoint })
	s.timeline.add(time.Now(), "DaemonSet deleted: the static copy leads")

	generation := s.eyes.sight().workload("kube-system/kube-scheduler").Generation
	s.roll("kube-scheduler")
	s.await(eventually, "the change to be saved", func(now sight) bool {
		return now.workload("kube-system/kube-scheduler").Generation > generation
	})
	s.awaitProtected()
	s.cutPower()
	s.await(soon, "the API, out of the checkpoint", byCheckpoint)
	s.awaitProtected()
	require.Equal(s, asCheckpoint, s.leader().role, "who leads: only the static copy is there")

	s.apply(set)
	s.await(eventually, "the DaemonSet's pod to lead", func(sight) bool { return s.leader().role == asParent })
	s.timeline.add(time.Now(), "DaemonSet made again: its pod leads")
	s.awaitSteady()
}

// TestDaemonIsKilledAtRandom: the daemon's two copies are killed, and its pod is
// deleted, at random, while the power is cut, the API server's pod is deleted and
// the scheduler is updated. All of it comes to rest as if nobody had, and whoever leads
// next leaves in place what it finds: two starts of the API server's checkpoint are
// all that the power cut and the deletion make.
func TestDaemonIsKilledAtRandom(t *testing.T) {
	s := begin(t)
	seed := uint64(time.Now().UnixNano())
	s.timeline.add(s.begun, "seed %d", seed)
	killed := s.killDaemons(rand.New(rand.NewPCG(seed, 0)))

	s.cutPower()
	s.await(eventually, "the API, out of the checkpoint or its parent", func(now sight) bool { return now.answers })
	s.awaitParents(map[string]string{})
	old := map[string]string{}
	for _, name := range controlPlane {
		holder, _ := s.lock(name)
		old[name] = holder.uid
	}
	s.patiently("delete", "pod", "--namespace=kube-system", "--selector=k8s-app=kube-apiserver", "--wait=false")
	s.awaitParents(map[string]string{"kube-apiserver": old["kube-apiserver"]})
	before, after := s.roll("kube-scheduler")
	s.awaitParents(map[string]string{"kube-scheduler": old["kube-scheduler"]})

	n := killed()
	s.timeline.add(time.Now(), "no more kills: there were %d", n)
	require.Greater(s, n, 2, "kills")
	s.awaitSteady()
	s.nothingOf("kube-scheduler", before, after)
	require.Equal(s, 2, s.timeline.times(manifestWritten), "starts of the API server's checkpoint")
}

// times is how often that line was added.
func (t *timeline) times(what string) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.lines {
		if l.what == what {
			n++
		}
	}
	return n
}

// awaitParents waits until parents hold all locks, and none of those that are named.
func (s *scene) awaitParents(not map[string]string) {
	s.Helper()
	s.await(2*eventually, "parents to serve", func(now sight) bool {
		for _, name := range controlPlane {
			if holder, _ := s.lock(name); holder.role != asParent || holder.uid == not[name] {
				return false
			}
		}
		return now.answers
	})
	s.timeline.add(time.Now(), "parents serve")
}

// killDaemons kills a copy of the daemon now and then, or deletes the pod of its
// DaemonSet, until the result is called, which returns how often it did. It does so
// maxKills times at most: who leads next counts its durations anew, so that more would
// make this test long and no harder, and the kubelet would leave both alone for minutes.
func (s *scene) killDaemons(random *rand.Rand) func() int {
	stop, count := make(chan struct{}), 0
	var done sync.WaitGroup
	done.Go(func() {
		for count < maxKills {
			select {
			case <-stop:
				return
			case <-time.After(2*time.Second + time.Duration(random.IntN(8000))*time.Millisecond):
			}
			leader, waiters := s.copies()
			switch victim := random.IntN(5); {
			case victim == 0:
				// Without an API server nobody deletes it.
				if _, err := s.lab.Kubectl(cluster.ctx, "delete", "pod", "--namespace=kube-system", "--selector=k8s-app=pod-checkpointer", "--wait=false"); err == nil {
					s.timeline.add(time.Now(), "  killer: the daemon's pod deleted")
					count++
				}
			case victim == 1 && len(waiters) > 0 && unix.Kill(waiters[0].pid, unix.SIGKILL) == nil:
				s.timeline.add(time.Now(), "  killer: SIGKILL to the copy that waits")
				count++
			case leader.pid != 0 && unix.Kill(leader.pid, unix.SIGKILL) == nil:
				s.timeline.add(time.Now(), "  killer: SIGKILL to the %s that leads", leader.role)
				count++
			}
		}
	})
	end := sync.OnceFunc(func() { close(stop); done.Wait() })
	s.Cleanup(end)
	return func() int { end(); return count }
}

// awaitProtected waits until the control plane is protected and known to be good,
// whoever leads.
func (s *scene) awaitProtected() {
	s.Helper()
	s.await(eventually, "the control plane to be protected", func(now sight) bool {
		return now.answers && now.serves.role == asParent && len(now.unprotected()) == 0
	})
	s.timeline.add(time.Now(), "protected")
}

// leader is the copy of the daemon that has the writer's lock.
func (s *scene) leader() party {
	s.Helper()
	leader, _ := s.copies()
	return leader
}

func (s *scene) copies() (leader party, waiters []party) {
	path, err := s.lab.NodePath(writersLock)
	if err != nil {
		return party{}, nil
	}
	state, err := lock.Inspect("/proc", path)
	if err != nil {
		return party{}, nil // somebody ended while it looked
	}
	return partiesOf(state)
}

// copyImage is the image in the manifest of the static copy.
func (s *scene) copyImage() string {
	s.Helper()
	data, err := os.ReadFile(filepath.Join(s.path(manifestDir), staticCopy))
	require.NoError(s, err)
	var pod corev1.Pod
	require.NoError(s, json.Unmarshal(data, &pod))
	require.Len(s, pod.Spec.Containers, 1)
	return pod.Spec.Containers[0].Image
}

// copyRuns tells whether one container runs of the static copy, and of that image.
func (s *scene) copyRuns(now sight, image string) bool {
	var images []string
	for _, pod := range now.pods {
		if pod.Source == "api" || !strings.HasPrefix(pod.Name, "pod-checkpointer-static") {
			continue
		}
		for _, c := range pod.Containers {
			if anyRuns(pod) {
				images = append(images, c.Image)
			}
		}
	}
	return fmt.Sprint(images) == fmt.Sprint([]string{image})
}
