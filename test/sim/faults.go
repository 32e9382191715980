package sim

import (
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

// faults are what is broken now, most of it until some time.
type faults struct {
	runtimeSilent, kubeletSilent, apiSilent, lockUnreadable, probesSlow time.Duration

	cutOff time.Duration // the kubelet does not reach the API server

	sickUntil time.Duration // programs are not ready, or end
	sickAll   bool          // those of checkpoints too
	sickness  program

	slowness  time.Duration // added to a program's start
	diskFails time.Duration
	diskError error
	looking   bool // the disk is used by the model

	reads int  // of the lock table, in this pass
	raced bool // the first that waits has ended between two of them

	cutAfter int // calls to the disk until cut; 0: never
	cut      interrupt
}

// breakdowns are all that can happen to a node, each as likely as its weight.
var breakdowns = []struct {
	weight int
	happen func(n *node)
}{
	{6, func(n *node) { n.powerCut(n.between(time.Second, time.Minute)) }},
	{3, func(n *node) { n.interruptPass((*node).killDaemon) }},
	{3, func(n *node) {
		n.interruptPass(func(n *node) { n.powerCut(n.between(time.Second, time.Minute)) })
	}},
	{4, func(n *node) { n.killDaemon() }},
	{4, func(n *node) {
		n.trace.say("FAULT kubelet restarts")
		n.restartKubelet(n.between(500*time.Millisecond, 5*time.Second))
	}},
	{2, func(n *node) {
		n.cutOff = n.now + n.between(10*time.Second, 90*time.Second)
		n.trace.say("FAULT kubelet restarts, and reaches no API server for %s", n.cutOff-n.now)
		n.restartKubelet(n.between(500*time.Millisecond, 5*time.Second))
	}},
	{3, func(n *node) { n.silence("runtime", &n.runtimeSilent) }},
	{2, func(n *node) { n.silence("kubelet's sockets", &n.kubeletSilent) }},
	{2, func(n *node) { n.silence("API server", &n.apiSilent) }},
	{1, func(n *node) { n.silence("lock table", &n.lockUnreadable) }},
	{2, func(n *node) { n.silence("readiness probe, or slow,", &n.probesSlow) }},
	{8, (*node).crashProgram},
	{3, (*node).loseSandbox},
	{8, (*node).deleteParent},
	{5, (*node).sicken},
	{5, (*node).rollOut},
	{3, (*node).newSecret},
	{1, (*node).tellAnew},
	{3, func(n *node) {
		n.diskFails = n.now + n.between(time.Second, 40*time.Second)
		n.diskError = []error{syscall.EIO, syscall.ENOSPC, syscall.EROFS}[n.rng.IntN(3)]
		n.trace.say("FAULT the disk fails: %v", n.diskError)
	}},
	{2, func(n *node) {
		n.slowness = []time.Duration{0, 20 * time.Second, 70 * time.Second}[n.rng.IntN(3)]
		n.trace.say("FAULT programs start %s slower", n.slowness)
	}},
	{2, (*node).loseManifest},
}

// breakDown lets one of them happen.
func (n *node) breakDown() {
	total := 0
	for _, b := range breakdowns {
		total += b.weight
	}
	pick := n.rng.IntN(total)
	for _, b := range breakdowns {
		if pick -= b.weight; pick < 0 {
			b.happen(n)
			return
		}
	}
}

// heal ends all of them. A person has corrected the templates and deleted the pods
// of the old ones: a parent that runs and never gets ready is none that the daemon
// ends, unless it has just handed over to it.
func (n *node) heal() {
	n.trace.say("HEALED")
	n.calm = true
	n.faults = faults{diskFails: min(n.diskFails, n.now), probesSlow: min(n.probesSlow, n.now)}
	for _, set := range n.cluster.sets {
		if set.program != good {
			set.change(good)
		}
	}
	for _, pod := range slices.Clone(n.cluster.pods) {
		if pod.Spec.Containers[0].Args[0] != string(good) {
			n.cluster.delete(pod, n.now)
		}
	}
}

func (n *node) silence(what string, until *time.Duration) {
	*until = n.now + n.between(time.Second, 40*time.Second)
	n.trace.say("FAULT %s silent for %s", what, *until-n.now)
}

// interruptPass has something happen between two calls to the disk.
func (n *node) interruptPass(cut interrupt) {
	n.cutAfter, n.cut = 1+n.rng.IntN(60), cut
	n.trace.say("FAULT at the %d. call to the disk from now", n.cutAfter)
}

func (n *node) crashProgram() {
	live := n.runtime.containers((*container).live)
	if len(live) > 0 {
		c := live[n.rng.IntN(len(live))]
		n.trace.say("FAULT %s crashes", c)
		n.kill(c, "crashed")
	}
}

// loseSandbox ends a pod's sandbox with all that is in it.
func (n *node) loseSandbox() {
	if len(n.runtime.sandboxes) == 0 {
		return
	}
	s := n.runtime.sandboxes[n.rng.IntN(len(n.runtime.sandboxes))]
	n.trace.say("FAULT the sandbox %s of %s %s ends", s.id, s.pod.workload, s.pod.role())
	s.ready = false
	for _, c := range s.containers {
		n.kill(c, "ended with its sandbox")
	}
}

// deleteParent is a user's doing, so it needs the API server.
func (n *node) deleteParent() {
	if !n.apiUp() || len(n.cluster.pods) == 0 {
		return
	}
	pod := n.cluster.pods[n.rng.IntN(len(n.cluster.pods))]
	n.trace.say("FAULT %s deleted", pod.Name)
	n.cluster.delete(pod, n.now)
}

// sicken keeps parents, or all programs, from working for a while.
func (n *node) sicken() {
	n.sickUntil = n.now + n.between(10*time.Second, 4*time.Minute)
	n.sickAll = n.rng.IntN(3) == 0
	n.sickness = []program{sleeps, sleeps, exits}[n.rng.IntN(3)]
	n.trace.say("FAULT programs are sick for %s: all=%t %s", n.sickUntil-n.now, n.sickAll, n.sickness)
}

// rollOut changes a template, for the better or the worse.
func (n *node) rollOut() {
	set := n.cluster.sets[n.rng.IntN(len(n.cluster.sets))]
	switch {
	case !n.apiUp():
		return
	case set.program == good && n.rng.IntN(2) == 0:
		program := bad[n.rng.IntN(len(bad))]
		if program == sleeps && set.name == controller && !set.probed {
			program = exits // nobody could tell that one that sleeps does not work
		}
		set.change(program)
	default:
		set.change(good)
	}
	n.trace.say("FAULT rollout of %s %s", set.name, set.args())
}

// newSecret renews what the server mounts.
func (n *node) newSecret() {
	n.cluster.secret++
	n.cluster.version++
	n.trace.say("FAULT new secret %d", n.cluster.secret)
}

// tellAnew is a write to an object that leaves it as it was.
func (n *node) tellAnew() { n.cluster.version++ }

// loseManifest is somebody who tidies up.
func (n *node) loseManifest() {
	for _, f := range n.readDir() {
		if strings.Contains(f.name, "pod-checkpointer-") && !strings.HasPrefix(f.name, ".") {
			n.trace.say("FAULT %s removed by hand", f.name)
			_ = n.look(staticDir, func(d *durable.Dir) error { return d.Remove(f.name) })
			return
		}
	}
}

// foreign are files that are none of ours.
var foreign = []file{
	{"etcd.yaml", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"etcd","namespace":"kube-system","uid":"etcd"},` +
		`"spec":{"containers":[{"name":"etcd","args":["--good"]}]}}`},
	{".hidden", "of somebody"},
}

func (n *node) writeForeign() {
	for _, f := range foreign {
		_ = n.look(staticDir, func(d *durable.Dir) error { return d.WriteFile(f.name, []byte(f.data), 0o600) })
	}
}

// foreignTouched names a foreign file that is not as it was.
func (n *node) foreignTouched() string {
	files := n.readDir()
	for _, f := range foreign {
		if !slices.Contains(files, f) {
			return f.name
		}
	}
	return ""
}
