//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestDeletePod: somebody deletes the only API server's pod. With it goes the API
// to which its end would be reported. The checkpoint is started while the kubelet still
// gives the pod time to end, and takes its place, the DaemonSet makes a new pod, and
// that one takes over.
func TestDeletePod(t *testing.T) {
	s := begin(t)
	s.calm()
	old := s.eyes.sight().serves.uid
	s.kubectl("delete", "pod", "--namespace=kube-system", "--selector=k8s-app=kube-apiserver", "--wait=false")
	s.timeline.add(time.Now(), "the API server's pod deleted")
	s.awaitHeir(soon, old)
	s.await(eventually, "a new parent to have the lock", newParent(old))
	s.awaitSteady()
	s.sayAway()
	require.Empty(s, processesOf(old), "processes of the deleted parent")
}

// TestRollingUpdate: the only API server gets another command line. Its old pod
// ends, its checkpoint serves and lets the controller make the new pod, which
// takes over. The API is away twice: until the checkpoint serves, which is started while
// the old pod ends, and while it hands over. That is a start more than two handoffs.
func TestRollingUpdate(t *testing.T) {
	s := begin(t)
	start, handoff := s.measureReboot()
	s.calm()
	old := s.eyes.sight().serves.uid
	rolled := time.Now()
	before, after := s.roll("kube-apiserver")
	alone := s.watchOld("kube-apiserver")
	s.awaitHeir(eventually, old)
	s.await(eventually, "the new parent to have the lock", newParent(old))
	s.awaitSteady()
	require.Empty(s, alone(), "copies of the old version that started beside the new one")
	s.nothingOf("kube-apiserver", before, after)
	require.Empty(s, processesOf(old), "processes of the old parent")

	away := s.eyes.awaySince(rolled)
	limit := 2*handoff + start
	s.timeline.add(time.Now(), "API away %.1f s (%s); two handoffs (%.1f s each) and a start (%.1f s) are %.1f s",
		total(away).Seconds(), away, handoff.Seconds(), start.Seconds(), limit.Seconds())
	require.Len(s, away, 2, "outages")
	require.Less(s, total(away), limit+limit/4, "how long the API was away")
}

// TestRollingUpdateOfClients: controller manager and scheduler get another command
// line, each while the other serves. Whoever makes the new pod, or finds it a node,
// may be the one that was just ended: its checkpoint does it.
func TestRollingUpdateOfClients(t *testing.T) {
	for _, name := range controlPlane[1:] {
		t.Run(name, func(t *testing.T) {
			s := begin(t)
			old, _ := s.lock(name)
			before, after := s.roll(name)
			alone := s.watchOld(name)
			s.await(eventually, "the new parent to have the lock", func(sight) bool {
				holder, _ := s.lock(name)
				return holder.role == asParent && holder.uid != old.uid
			})
			s.awaitSteady()
			require.Empty(s, alone(), "copies of the old version that started beside the new one")
			s.nothingOf(name, before, after)
			require.Empty(s, processesOf(old.uid), "processes of the old parent")
			require.Empty(s, s.eyes.awaySince(s.begun), "the API was away")
		})
	}
}

// awaitHeir waits until the checkpoint serves in the place of a parent that is being
// deleted. It has to be started while that one still has the lock.
func (s *scene) awaitHeir(limit time.Duration, parent string) {
	s.Helper()
	s.await(limit, "the manifest, while the parent that is deleted has the lock", func(now sight) bool {
		return now.manifest != "" && now.serves.uid == parent
	})
	s.await(soon, "the API, out of the checkpoint", byCheckpoint)
}

// calm lets a moment pass in which nothing happens, so that the daemon does not just look
// anew at what has changed, but watches.
func (s *scene) calm() {
	s.Helper()
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
		s.rest("calm")
	}
}

// newParent tells whether a parent serves that is not the one of that UID.
func newParent(old string) func(sight) bool {
	return func(now sight) bool { return now.answers && now.serves.role == asParent && now.serves.uid != old }
}

// roll gives a DaemonSet's pods another verbosity, and returns the word of its
// command line before and after.
func (s *scene) roll(name string) (before, after string) {
	s.Helper()
	text := s.patiently("get", "daemonset", name, "--namespace=kube-system", "--output=jsonpath={.spec.template.spec.containers[0].command}")
	var command []string
	require.NoError(s, json.Unmarshal([]byte(text), &command))
	i := slices.IndexFunc(command, func(word string) bool { return strings.HasPrefix(word, "--v=") })
	require.GreaterOrEqual(s, i, 0, "verbosity in %q", command)
	before, after = command[i], "--v=1"
	if before == after {
		after = "--v=2"
	}
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/command/%d","value":%q}]`, i, after)
	s.patiently("patch", "daemonset", name, "--namespace=kube-system", "--type=json", "--patch="+patch)
	s.timeline.add(time.Now(), "DaemonSet %s: %s becomes %s", name, before, after)
	return before, after
}

// nothingOf asserts that a program runs once, with the word after and not the one
// before on its command line, and that no manifest of its checkpoint is left.
func (s *scene) nothingOf(name, before, after string) {
	s.Helper()
	var with []string
	for _, line := range s.commands() {
		if words := strings.Split(line, "\x00"); words[0] == name {
			require.NotContains(s, words, before, "a process of the old version")
			with = append(with, line)
		}
	}
	require.Len(s, with, 1, "processes of "+name)
	require.Contains(s, strings.Split(with[0], "\x00"), after)
	left, err := filepath.Glob(filepath.Join(s.path(manifestDir), "*"+name+".json"))
	require.NoError(s, err)
	require.Empty(s, left, "manifests of a checkpoint")
}

// commands are the command lines of all of the node's processes.
func (s *scene) commands() []string {
	s.Helper()
	files, err := filepath.Glob(s.path("/proc") + "/[0-9]*/cmdline")
	require.NoError(s, err)
	var out []string
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && len(line) > 0 {
			out = append(out, strings.TrimSuffix(string(line), "\x00"))
		}
	}
	require.NotEmpty(s, out)
	return out
}

// lock is who holds the lock of a workload, and who waits for it.
func (s *scene) lock(name string) (holder party, waiters []party) {
	s.Helper()
	root := s.eyes.node.path()
	if root == "" {
		return party{}, nil
	}
	state, err := lock.Inspect("/proc", filepath.Join(root, "root", lockDir, name+".lock"))
	if err != nil {
		return party{}, nil // somebody ended while it looked
	}
	return partiesOf(state)
}

// holders are who holds the locks of the control plane, once all of them are held.
func (s *scene) holders() map[string]party {
	s.Helper()
	out := map[string]party{}
	s.await(soon, "all locks to be held", func(sight) bool {
		for _, name := range controlPlane {
			if out[name], _ = s.lock(name); out[name].role == "" {
				return false
			}
		}
		return true
	})
	return out
}

// watchOld watches, from now until its result is called, that no checkpoint of a
// workload as it is now starts while a parent runs that is not there yet. It
// returns those that did.
func (s *scene) watchOld(name string) func() []string {
	s.Helper()
	workload := "kube-system/" + name
	newest := s.eyes.sight().workload(workload).Generation
	require.NotZero(s, newest)
	known := map[string]bool{} // parents that there are, and checkpoints that were seen
	for _, pod := range s.eyes.sight().pods {
		known[pod.UID] = true
	}
	var found []string
	look := func() {
		news := ""
		for _, pod := range s.eyes.sight().pods {
			if pod.Source == "api" && strings.HasPrefix(pod.Name, name+"-") && !known[pod.UID] && anyRuns(pod) {
				news = pod.Name
			}
		}
		for _, pod := range s.eyes.sight().pods {
			if pod.Annotation(ofKey) != workload || known[pod.UID] {
				continue
			}
			known[pod.UID] = true
			generation, err := strconv.ParseInt(pod.Annotation(generationKey), 10, 64)
			if news != "" && (err != nil || generation <= newest) {
				found = append(found, fmt.Sprintf("%s of generation %d beside %s", pod.Name, generation, news))
			}
		}
	}
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for tick := time.NewTicker(beat); ; {
			look()
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	})
	end := sync.OnceFunc(func() { close(stop); done.Wait() })
	s.Cleanup(end)
	return func() []string { end(); return found }
}

func anyRuns(pod cri.Pod) bool {
	return slices.ContainsFunc(pod.Containers, func(c cri.Container) bool { return c.State == cri.Running })
}

// measureReboot cuts the power, and returns how long the API server took from its
// manifest to its first answer, and how long the handoff took it away.
func (s *scene) measureReboot() (start, handoff time.Duration) {
	s.Helper()
	s.cutPower()
	s.await(soon, "the API, out of the checkpoint", byCheckpoint)
	answered := time.Now()
	written, ok := s.timeline.last(manifestWritten)
	require.True(s, ok, "the manifest was written")
	start = answered.Sub(written)
	s.awaitSteady()
	away := s.eyes.awaySince(answered)
	require.Len(s, away, 1, "outages of one handoff")
	return start, total(away)
}

// sayAway puts on the timeline how long the API was away in this scenario.
func (s *scene) sayAway() {
	away := s.eyes.awaySince(s.begun)
	s.timeline.add(time.Now(), "API away %.1f s (%s)", total(away).Seconds(), away)
}

// pods are the API server's pods of one DaemonSet.
func (s *scene) pods(name string) []corev1.Pod {
	s.Helper()
	var list corev1.PodList
	text := s.kubectl("get", "pods", "--namespace=kube-system", "--selector=k8s-app="+name, "--output=json")
	require.NoError(s, json.Unmarshal([]byte(text), &list))
	return list.Items
}
