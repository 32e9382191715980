//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	binDir = "/opt/pod-checkpointer/bin"
	// namedIn is how long /status may take to name what is wrong; that of two
	// DaemonSets it names when they have stood beside each other for a minute.
	namedIn = soon
	odd     = "odd" // the workload that most is wrong with
)

// TestFindings: what people get wrong is named in /status, the control plane stays as
// protected as it was, and when the cause is gone, so is the finding.
func TestFindings(t *testing.T) {
	s := begin(t)
	s.Cleanup(func() { // of a scenario that fails half-way
		_, _ = s.lab.Kubectl(cluster.ctx, "delete", "daemonset", "--namespace=kube-system", "--selector=of=findings", "--ignore-not-found")
	})
	before := s.guarded()
	s.applySet(s.secondDaemon())
	second := time.Now()

	t.Run("a node without lock-exec", func(t *testing.T) {
		s := s.in(t)
		var missing []string
		for _, name := range controlPlane {
			missing = append(missing, "kube-system/"+name+": LockExecMissing: ")
		}
		bin := s.path(binDir)
		s.Cleanup(func() { _ = os.Rename(bin+".away", bin) }) // of one that fails half-way
		require.NoError(s, os.Rename(bin, bin+".away"))
		s.named(before, namedIn, missing...)
		require.NoError(s, os.Rename(bin+".away", bin))
		s.mended(before, missing...)
	})
	t.Run("locks that are not the annotated one", func(t *testing.T) {
		s := s.in(t)
		elsewhere, twice := pausing("elsewhere"), pausing("twice")
		command := elsewhere.Spec.Template.Spec.Containers[0].Command
		command[slices.Index(command, lockDir+"/elsewhere.lock")] = lockDir + "/nobody.lock"
		pod := &twice.Spec.Template.Spec
		again := *pod.Containers[0].DeepCopy()
		again.Name = "again"
		pod.Containers = append(pod.Containers, again)
		s.applySet(elsewhere)
		s.applySet(twice)
		mismatches := []string{
			"kube-system/elsewhere: unprotectable: LockMismatch: spec.containers[0].command",
			"kube-system/twice: unprotectable: LockMismatch: spec.containers[1].command",
		}
		s.named(before, namedIn, mismatches...)
		s.kubectl("delete", "daemonset", "--namespace=kube-system", "elsewhere", "twice")
		s.mended(before, mismatches...)
	})
	t.Run("a parent", func(t *testing.T) {
		s := s.in(t)
		wrong := []string{
			"kube-system/odd: LongGrace: spec.terminationGracePeriodSeconds is 30",
			"kube-system/odd: LongGrace: a checkpoint may take 30s",
			"kube-system/odd: MaxSurge: DaemonSet odd",
			"kube-system/odd: UnsafeReadiness: spec.containers[0].readinessProbe",
		}
		s.applySet(wrongParent())
		s.named(before, namedIn, wrong...)
		s.awaitOdd()
		s.splitLock(before)

		s.applySet(pausing(odd))
		s.mended(before, wrong...)
		s.awaitOdd()
		s.unprotect(before)
	})
	t.Run("two DaemonSets of the daemon", func(t *testing.T) {
		s := s.in(t)
		finding := "SecondDaemon: " + before.leader + " leads and kube-system/pod-checkpointer-second-"
		s.named(before, namedIn+time.Until(second.Add(namedIn)), finding)
		s.kubectl("delete", "daemonset", "--namespace=kube-system", "pod-checkpointer-second")
		s.mended(before, finding)
	})
	s.forget(before)
	s.awaitSteady()
}

// splitLock removes a lock file under its holder. From then on nobody can tell who
// serves, and so nothing is started or ended, until the holder is ended by hand: who
// comes next makes a new file.
func (s *scene) splitLock(before guarded) {
	s.Helper()
	finding := "kube-system/odd: LockSplit: "
	file := s.path(lockDir + "/odd.lock")
	state, err := lock.Inspect("/proc", file)
	require.NoError(s, err)
	require.NotNil(s, state.Holder)
	stored := s.stored()
	require.NoError(s, os.Remove(file))
	s.named(before, namedIn, finding)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); s.rest("nothing") {
		require.Empty(s, s.manifestsOf(odd), "a checkpoint was started")
		require.DirExists(s, filepath.Join("/proc", fmt.Sprint(state.Holder.PID)), "the holder was ended")
	}
	require.Equal(s, stored, s.stored(), "what the store has")
	require.NoError(s, lock.End(cluster.ctx, "/proc", *state.Holder, soon))
	s.mended(before, finding)
	s.awaitOdd()
}

// unprotect takes the annotation away, after which what is on disk stays.
func (s *scene) unprotect(before guarded) {
	s.Helper()
	set := pausing(odd)
	delete(set.Spec.Template.Annotations, "pod-checkpointer.io/checkpoint")
	s.applySet(set)
	s.named(before, namedIn, "kube-system/odd: Unwanted: ")
	s.awaitOdd()
}

// forget takes what is on disk away, and has another daemon lead: the one that knew of
// it would not forget. The other workloads are protected meanwhile.
func (s *scene) forget(before guarded) {
	s.Helper()
	require.NoError(s, os.RemoveAll(s.path("/var/lib/pod-checkpointer/workloads/kube-system/odd")))
	s.kubectl("delete", "pod", "--namespace=kube-system", strings.TrimPrefix(before.leader, "kube-system/"))
	s.await(soon, "another daemon to lead, which knows nothing of it", func(now sight) bool {
		return now.status != nil && now.status.Leader != before.leader && now.workload("kube-system/odd").Workload == ""
	})
	s.kubectl("delete", "daemonset", "--namespace=kube-system", odd)
	s.await(soon, "its pod to be gone", func(now sight) bool {
		return !slices.ContainsFunc(now.pods, func(pod cri.Pod) bool { return strings.HasPrefix(pod.Name, odd+"-") && anyRuns(pod) })
	})
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); s.rest("nothing") {
		require.Empty(s, s.manifestsOf(odd), "a checkpoint was started")
	}
}

// guarded is what must stay as it is: who serves the control plane, what is on disk
// of it, the static pod directory, and who leads among the daemons.
type guarded struct {
	serve  map[string]party
	stored []string
	files  map[string]file
	leader string
}

func (s *scene) guarded() guarded {
	s.Helper()
	now := guarded{serve: map[string]party{}, files: s.foreign(s.path(manifestDir))}
	for _, name := range controlPlane {
		now.serve[name], _ = s.lock(name)
		require.Empty(s, s.manifestsOf(name), "a checkpoint was started")
	}
	for _, path := range s.stored() {
		if strings.Contains(path, "/kube-system/kube-") {
			now.stored = append(now.stored, path)
		}
	}
	if status := s.eyes.sight().status; status != nil {
		now.leader = status.Leader
	}
	return now
}

// manifestsOf are the files of a workload's checkpoints in the static pod directory.
func (s *scene) manifestsOf(name string) []string {
	s.Helper()
	files, err := filepath.Glob(filepath.Join(s.path(manifestDir), "*."+name+".json"))
	require.NoError(s, err)
	return files
}

// in is the same scenario, for a part of it.
func (s *scene) in(t *testing.T) *scene {
	part := *s
	part.T = t
	return &part
}

// named waits until /status says all that, and asserts that nothing else came of it.
func (s *scene) named(before guarded, limit time.Duration, findings ...string) {
	s.Helper()
	now := s.await(limit, fmt.Sprintf("/status to say: %q", findings), func(now sight) bool {
		return !slices.ContainsFunc(findings, func(f string) bool { return now.finding(f) == "" })
	})
	for _, f := range findings {
		s.timeline.add(time.Now(), "named: %.120s", now.finding(f))
	}
	require.Equal(s, before, s.guarded())
}

// mended waits until /status says nothing of it any more.
func (s *scene) mended(before guarded, findings ...string) {
	s.Helper()
	s.await(soon, fmt.Sprintf("/status not to say: %q", findings), func(now sight) bool {
		return now.status != nil && !slices.ContainsFunc(findings, func(f string) bool { return now.finding(f) != "" })
	})
	s.timeline.add(time.Now(), "mended")
	require.Equal(s, before, s.guarded())
}

// finding is the one that begins so, "" if there is none. Those of a workload begin
// with its name.
func (s sight) finding(prefix string) string {
	if s.status == nil {
		return ""
	}
	all := slices.Clone(s.status.Problems)
	for _, w := range s.status.Workloads {
		for _, f := range w.Findings {
			all = append(all, w.Workload+": "+f)
		}
		if w.State == checkpoint.Unprotectable {
			all = append(all, w.Workload+": "+w.Why)
		}
	}
	for _, f := range all {
		if strings.HasPrefix(f, prefix) {
			return f
		}
	}
	return ""
}

// awaitOdd waits until the odd parent serves and nothing of a checkpoint is left.
func (s *scene) awaitOdd() {
	s.Helper()
	s.await(soon, odd+" to be protected", func(now sight) bool {
		holder, waiters := s.lock(odd)
		w := now.workload("kube-system/" + odd)
		return w.State == checkpoint.Protected && w.Activation == "" && holder.role == asParent && len(waiters) == 0
	})
}

// secondDaemon is the DaemonSet of the daemon under another name.
func (s *scene) secondDaemon() *appsv1.DaemonSet {
	s.Helper()
	set := &appsv1.DaemonSet{}
	require.NoError(s, json.Unmarshal([]byte(s.daemonSet("pod-checkpointer")), set))
	set.Name, set.Labels = "pod-checkpointer-second", map[string]string{"of": "findings"}
	return set
}

// applySet makes a DaemonSet, or makes it what it is now.
func (s *scene) applySet(set *appsv1.DaemonSet) {
	s.Helper()
	text, err := json.Marshal(set)
	require.NoError(s, err)
	s.apply(string(text))
	s.timeline.add(time.Now(), "DaemonSet %s applied", set.Name)
}

// pausing is a workload that does nothing, in the way that the manual says.
func pausing(name string) *appsv1.DaemonSet {
	const lockExec = binDir + "/lock-exec"
	file := lockDir + "/" + name + ".lock"
	labels := map[string]string{"app": name}
	grace, none, one := int64(1), intstr.FromInt32(0), intstr.FromInt32(1)
	hostPath := func(name, path string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}
	}
	return &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system", Labels: map[string]string{"of": "findings"}},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type:          appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxSurge: &none, MaxUnavailable: &one},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{
					"pod-checkpointer.io/checkpoint": "true", "pod-checkpointer.io/lock": name,
				}},
				Spec: corev1.PodSpec{
					HostNetwork:                   true,
					AutomountServiceAccountToken:  new(bool),
					TerminationGracePeriodSeconds: &grace,
					Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers: []corev1.Container{{
						Name: "pause", Image: pauseImage, Command: []string{lockExec, "--lock", file, "--", "/pause"},
						// It serves nothing itself: the kubelet answers.
						ReadinessProbe: &corev1.Probe{PeriodSeconds: 2, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
							Command: []string{lockExec, "check", "--ready", "--lock", file, "--", "http", "http://127.0.0.1:10248/healthz"},
						}}},
						VolumeMounts: []corev1.VolumeMount{
							{Name: "bin", MountPath: binDir, ReadOnly: true}, {Name: "lock", MountPath: lockDir},
						},
					}},
					Volumes: []corev1.Volume{hostPath("bin", binDir), hostPath("lock", lockDir)},
				},
			},
		},
	}
}

// wrongParent can be protected, but it has what makes a handoff long, a rolling
// update stand still, and a waiter look ready.
func wrongParent() *appsv1.DaemonSet {
	set := pausing(odd)
	none, one := intstr.FromInt32(0), intstr.FromInt32(1)
	set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxSurge: &one, MaxUnavailable: &none}
	pod := &set.Spec.Template.Spec
	grace := int64(30)
	pod.TerminationGracePeriodSeconds = &grace
	pod.Containers[0].ReadinessProbe.ProbeHandler = corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
		Host: "127.0.0.1", Port: intstr.FromInt32(10248), Path: "/healthz",
	}}
	return set
}
