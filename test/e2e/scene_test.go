//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
	"github.com/stretchr/testify/require"
)

const (
	// soon is for what the node does by itself.
	soon = time.Minute
	// eventually is for what waits for a client of the API server to see it
	// again after an outage: client-go backs off for up to a minute, and more
	// than one of them may have to come back, one after the other.
	eventually = 3 * time.Minute

	pauseImage = "lab.local/pause:1"
)

// controlPlane are the DaemonSets that the daemon protects; the others are the
// clients of the first.
var controlPlane = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// scene is one scenario on the shared cluster.
type scene struct {
	*testing.T
	lab      *lab.Lab
	eyes     *eyes
	timeline *timeline
	begun    time.Time
}

// begin starts a scenario in the steady state. At its end its timeline is
// printed, and what there is to see if it failed.
func begin(t *testing.T) *scene {
	s := &scene{T: t, lab: cluster.lab, eyes: cluster.eyes, timeline: &cluster.eyes.timeline, begun: time.Now()}
	s.timeline.begin(t.Name())
	t.Cleanup(func() {
		s.timeline.print(os.Stdout)
		if t.Failed() && cluster.ctx.Err() == nil {
			s.report(os.Stdout)
		}
	})
	s.awaitSteady()
	return s
}

// await waits until the sight is as it should be.
func (s *scene) await(limit time.Duration, what string, is func(sight) bool) sight {
	s.Helper()
	deadline := time.Now().Add(limit)
	for {
		now := s.eyes.sight()
		if is(now) {
			return now
		}
		if time.Now().After(deadline) {
			require.FailNow(s, "waited "+limit.String()+" in vain", "for: %s\nseen:\n%s", what, now)
		}
		s.rest(what)
	}
}

// rest is between two tries.
func (s *scene) rest(what string) {
	s.Helper()
	select {
	case <-cluster.ctx.Done():
		require.FailNow(s, "stopped", "%v, while waiting for: %s", context.Cause(cluster.ctx), what)
	case <-time.After(beat):
	}
}

// awaitSteady waits until the parents serve and nothing of a checkpoint is left.
func (s *scene) awaitSteady() sight {
	s.Helper()
	now := s.await(eventually, "the steady state", steady)
	s.timeline.add(time.Now(), "steady")
	return now
}

func steady(s sight) bool {
	return s.answers && s.serves.role == asParent && len(s.waiters) == 0 && s.manifest == "" && !runs(s.pods, asCheckpoint) &&
		len(s.restless()) == 0
}

// restless are those parts of the control plane that are unprotected, and the daemon
// itself where it is not led by its pod from the API, with its static copy in place.
func (s sight) restless() []string {
	out := s.unprotected()
	if s.status == nil || s.status.StaticCopy != "up to date" {
		out = append(out, "the daemon's static copy")
	}
	return out
}

// unprotected are those parts of the control plane of which the daemon does not say
// that they are protected and known to be good.
func (s sight) unprotected() []string {
	var out []string
	for _, name := range controlPlane {
		w := s.workload("kube-system/" + name)
		if w.State != checkpoint.Protected || w.Activation != "" || w.KnownGood == 0 || w.KnownGood != w.Generation {
			out = append(out, fmt.Sprintf("%s %s %s", name, w.State, w.Why))
		}
	}
	return out
}

// byCheckpoint is the API server's answer out of a checkpoint.
func byCheckpoint(s sight) bool { return s.answers && s.serves.role == asCheckpoint }

// workload is what the daemon says of one; empty if it says nothing.
func (s sight) workload(name string) checkpoint.WorkloadStatus {
	if s.status != nil {
		for _, w := range s.status.Workloads {
			if w.Workload == name {
				return w
			}
		}
	}
	return checkpoint.WorkloadStatus{}
}

func runs(pods []cri.Pod, who string) bool {
	for _, name := range running(pods) {
		if name == who {
			return true
		}
	}
	return false
}

func (s sight) String() string {
	return fmt.Sprintf("API answers %t, lock held by %s, %d wait, manifest %q, running %v\nnot at rest: %q",
		s.answers, s.serves.role, len(s.waiters), s.manifest, running(s.pods), s.restless())
}

// cutPower ends everything on the node in one instant, and boots it.
func (s *scene) cutPower() {
	s.Helper()
	s.timeline.powerCut()
	require.NoError(s, s.lab.PowerCut(cluster.ctx))
	s.eyes.change(func(now *sight) { *now = sight{manifest: now.manifest} }) // the disk stays
	require.NoError(s, s.lab.Boot(cluster.ctx))
	kubelet, err := s.lab.Component(lab.Kubelet)
	require.NoError(s, err)
	s.timeline.add(kubelet.Started, "kubelet started")
}

// refreshClients starts the API server's clients anew. After an outage they would
// else be in back-off, one after the other, for a minute or more. The kubelet is
// away meanwhile, and has forgotten how often the others ended before.
func (s *scene) refreshClients() {
	s.Helper()
	require.NoError(s, s.lab.Kill(lab.Kubelet))
	for _, name := range controlPlane[1:] {
		state, err := lock.Inspect("/proc", s.path(lockDir+"/"+name+".lock"))
		require.NoError(s, err)
		if state.Holder != nil {
			// By SIGTERM, on which the scheduler gives up its lease.
			require.NoError(s, lock.End(cluster.ctx, "/proc", *state.Holder, soon))
		}
	}
	require.NoError(s, s.lab.Start(cluster.ctx, lab.Kubelet))
	s.timeline.add(time.Now(), "kubelet, controller manager and scheduler started anew")
}

// kubectl runs it as the administrator and returns what it printed.
func (s *scene) kubectl(args ...string) string {
	s.Helper()
	out, err := s.lab.Kubectl(cluster.ctx, args...)
	require.NoError(s, err)
	return out
}

// patiently runs kubectl until the API server takes it: it may just be changing hands.
func (s *scene) patiently(args ...string) (out string) {
	s.Helper()
	s.await(soon, "kubectl "+args[0], func(sight) bool {
		var err error
		out, err = s.lab.Kubectl(cluster.ctx, args...)
		return err == nil
	})
	return out
}

// path is a path of the node, from outside.
func (s *scene) path(path string) string {
	s.Helper()
	out, err := s.lab.NodePath(path)
	require.NoError(s, err)
	return out
}

// processesOf are the processes in the cgroups of a pod.
func processesOf(uid string) []string {
	var out []string
	files, _ := filepath.Glob("/proc/[0-9]*/cgroup") // fails for a bad pattern only
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), "pod"+uid) {
			out = append(out, filepath.Base(filepath.Dir(file)))
		}
	}
	return out
}
