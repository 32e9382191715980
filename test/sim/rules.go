package sim

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
)

const exited = cri.Exited

// lag is how old the runtime's answer may be that the loop still believes.
const lag = 6 * time.Second

// repeats is how long a loop may take to give an order once more.
const repeats = time.Minute

// asking is how old the probe's answer may be, where it is that old in good times.
func (n *node) asking(usual time.Duration) time.Duration {
	if n.now < n.probesSlow+20*time.Second {
		return usual + slowProbe
	}
	return usual
}

// rules are what must hold at every step, and what has to be remembered to tell.
type rules struct {
	violation string // the first

	synced  time.Duration            // when the kubelet last was
	solid   map[string]time.Duration // when a parent last ran that had run for two seconds
	live    map[string]time.Duration // since when a parent runs
	seen    map[string]time.Duration // when a parent last had a sandbox
	handed  map[string]handed        // by pod UID of the parent: the last handoff
	up      time.Duration            // when the API server last answered
	down    time.Duration            // when it last did not
	free    map[string]time.Duration // since when nobody holds a lock
	written map[string]time.Duration // when an activation's manifest was first seen

	// Before the pass.
	active map[string]*pod
	was    map[string]store.State
	giving map[string]bool // a handoff is under way
	// What the daemon did, in all passes.
	ordered map[string]time.Duration // when it last did
	// What a loop without memory would do in this pass.
	opinion opinion

	had      map[string]bool   // workloads that have had a generation
	payloads map[string]string // of the server's Secret, by digest
}

func newRules() rules {
	return rules{
		solid: map[string]time.Duration{}, live: map[string]time.Duration{}, seen: map[string]time.Duration{},
		free: map[string]time.Duration{}, written: map[string]time.Duration{}, handed: map[string]handed{}, ordered: map[string]time.Duration{}, had: map[string]bool{}, payloads: map[string]string{},
	}
}

// handed is a handoff to a parent that has not proved itself since.
type handed struct {
	at    time.Duration
	boot  string
	times int // that it was handed over to
}

// broken reports that a rule was broken; the first report counts.
func (n *node) broken(format string, args ...any) {
	if n.rules.violation == "" {
		n.rules.violation = fmt.Sprintf(format, args...)
		n.trace.say("BROKEN %s", n.rules.violation)
	}
}

// always looks after each step.
func (n *node) always() {
	r := &n.rules
	if n.kube.synced {
		r.synced = n.now
	}
	if n.apiUp() {
		r.up = n.now
	} else {
		r.down = n.now
	}
	for _, w := range workloads {
		h := n.locks[lockOf(w)].holder()
		if _, ok := r.free[w]; h != nil && n.now-h.serves >= 3*time.Second { // who holds for less may not be seen
			delete(r.free, w)
		} else if h == nil && (!ok || n.now < n.booted+step) {
			r.free[w] = n.now
		}
		if n.parent(w) != nil {
			r.seen[w] = n.now
		}
		if len(n.containers(w, "parent")) == 0 {
			delete(r.live, w)
			continue
		}
		if _, ok := r.live[w]; !ok {
			r.live[w] = n.now
		}
		if n.now-r.live[w] >= 2*time.Second {
			r.solid[w] = n.now
		}
	}
}

// containers are the live ones of a workload in a role.
func (n *node) containers(workload, role string) []*container {
	return n.runtime.containers(func(c *container) bool {
		return c.live() && c.pod.workload == workload && c.pod.role() == role
	})
}

// parent is the newest pod of a workload's parents that has a sandbox.
func (n *node) parent(workload string) *pod {
	for _, s := range slices.Backward(n.runtime.sandboxes) {
		if s.ready && s.pod.workload == workload && s.pod.role() == "parent" && len(s.containers) > 0 {
			return s.pod
		}
	}
	return nil
}

// activations are the checkpoints that have a manifest now.
func (n *node) activations() map[string]*pod {
	active := map[string]*pod{}
	for _, p := range n.staticPods() {
		if !p.ours {
			continue
		}
		if active[p.workload] != nil {
			n.broken("%s has two manifests", p.workload)
		}
		active[p.workload] = p
		if _, ok := n.rules.written[p.activation()]; !ok {
			n.rules.written[p.activation()] = n.now
		}
	}
	return active
}

// before looks before a pass, and now and then asks a loop without memory.
func (n *node) before() {
	r := &n.rules
	r.active, r.was, r.giving = n.activations(), map[string]store.State{}, map[string]bool{}
	for _, w := range n.daemon.store.Workloads() {
		r.was[w.Key.Workload] = w.State
		r.giving[w.Key.Workload] = n.open(w.State.Handoff)
	}
	r.opinion, n.reads = nil, -len(workloads) // the race is for the pass itself
	if !n.forgetful && n.now >= n.diskFails+20*time.Second && n.cutAfter == 0 && n.rng.IntN(8) == 0 {
		n.newLoop(&n.daemon, true).Pass(context.Background())
	}
	n.reads, n.raced = 0, false
}

// after looks at what a pass has done to manifests and records.
func (n *node) after() {
	r := &n.rules
	active := n.activations()
	for _, w := range workloads {
		was, is := r.active[w], active[w]
		switch {
		case was == nil && is != nil:
			n.mayStart(w)
		case was != nil && is == nil:
			n.mayRemove(w)
		case was != nil && is != nil && was.activation() != is.activation():
			n.mayReplace(was)
		}
		if is != nil && (was == nil || was.activation() != is.activation()) {
			n.ordered("start " + w)
			n.mayBeOld(is)
		}
		if was != nil && is == nil {
			n.ordered("hand over " + w)
		}
	}
	if name := n.foreignTouched(); name != "" {
		n.broken("the foreign file %s was touched", name)
	}
	n.mayMount(active[server])
	n.records()
	n.bolder()
}

func (n *node) ordered(what string) { n.rules.ordered[what] = n.now }

// mayStart: without a lock two would run side by side.
func (n *node) mayStart(w string) {
	r := &n.rules
	if lock := lockOf(w); lock != "" {
		if h := n.locks[lock].holder(); h != nil && h.container.pod.role() == "parent" && !n.rollingBack(w) && n.cluster.stays(h.container.pod.UID) {
			n.broken("a checkpoint of %s was started while a parent that stays holds the lock", w)
		}
		n.maySkip(w)
		return
	}
	if r.giving[w] {
		return // back, from a parent that did not make it
	}
	solid, ran := r.solid[w]
	since, runs := r.live[w]
	early := ran && n.now-solid > lag && n.now-solid < config().ActivateAfter-lag && solid > n.booted
	if early || runs && n.now-since > lag+2*time.Second {
		n.broken("a checkpoint of %s was started although a parent ran %s ago", w, n.now-solid)
	}
}

// maySkip: a start waits for the server, as long as that may help.
func (n *node) maySkip(w string) {
	since, free := n.rules.free[w]
	if w != server && free && !n.rules.giving[w] && n.away() && n.now-since < 28*time.Second {
		n.broken("a checkpoint of %s was started %s after its lock fell free, and the API server does not answer", w, n.now-since)
	}
}

// away tells whether the API server has been away for so long that the daemon knows.
func (n *node) away() bool { return n.now-n.rules.up > n.asking(lag) }

// mayBeOld: beside a parent that stands in line, only its own version starts, unless
// it has failed.
func (n *node) mayBeOld(started *pod) {
	f := n.locks[lockOf(started.workload)]
	if f == nil || n.raced {
		return
	}
	record, _ := n.daemon.store.Workload(store.Key{Namespace: namespace, Workload: started.workload})
	for _, p := range f.queue {
		parent := p.container.pod
		saved := slices.ContainsFunc(record.Generations, func(g store.Generation) bool { return g.Source.PodUID == string(parent.UID) })
		failed := n.rollingBack(started.workload) || record.State.FailedParent == string(parent.UID)
		if parent.role() == "parent" && parent.version > started.version && saved && !failed {
			n.broken("version %d of %s was started beside a parent of version %d", started.version, started.workload, parent.version)
		}
	}
}

// mayRemove: the kubelet obeys, and the parent is there.
func (n *node) mayRemove(w string) {
	r := &n.rules
	if lockOf(w) == "" {
		seen, ok := r.seen[w]
		if !ok || n.now-seen > lag {
			n.broken("the manifest of %s was removed, and there is no parent", w)
		}
		return
	}
	f := n.locks[lockOf(w)]
	if n.raced || f != nil && len(f.queue) > 0 && f.queue[0].container.pod.role() == "parent" {
		return
	}
	if n.now-r.synced > lag+2*time.Second {
		n.broken("the manifest of %s was removed under a kubelet that is not synced", w)
	}
	if f == nil || len(f.queue) < 2 || f.queue[1].container.pod.role() != "parent" {
		n.broken("the manifest of %s was removed, and the parent is not next", w)
	}
}

// mayHandOver: a parent that fails again and again takes its checkpoint down
// once per backoff, which grows, not each time that it is restarted.
func (n *node) mayHandOver(checkpoint *container, parent *pod) {
	was := n.rules.active[checkpoint.pod.workload]
	if was == nil || was.UID != checkpoint.pod.UID || parent == nil || checkpoint.process == nil || checkpoint.process.dies != 0 {
		return // it goes anyway
	}
	uid := string(parent.UID)
	last, ok := n.rules.handed[uid]
	if !ok || last.boot != n.boot || parent.after && max(n.rules.down, n.daemon.upAt) > last.at-40*time.Second { // which explains it
		n.rules.handed[uid] = handed{n.now, n.boot, 1}
		return
	}
	if wait := min(time.Minute<<(last.times-1), 30*time.Minute); n.now-last.at < wait {
		n.broken("the parent of %s failed %d times, and got its next try after %s", parent.workload, last.times, n.now-last.at)
	}
	n.rules.handed[uid] = handed{n.now, n.boot, last.times + 1}
}

// mayReplace: only a checkpoint that has failed.
func (n *node) mayReplace(was *pod) {
	exits := 0
	for _, c := range n.runtime.containers(func(c *container) bool { return c.pod.UID == was.UID }) {
		if !c.live() && c.ended > n.booted {
			exits++
		}
		if c.process != nil && c.process.readyAt != 0 && n.now-c.process.readyAt > n.asking(2*time.Second) && !n.raced {
			n.broken("%s was replaced while it is ready", c)
		}
	}
	age := n.now - max(n.rules.written[was.activation()], n.booted)
	if !n.raced && exits < 3 && age < config().StartTimeout-time.Second {
		n.broken("the checkpoint of %s was given up after %s and %d exits", was.workload, age, exits)
	}
}

// mayEnd: only a checkpoint that has no manifest, and if it is ready, only for
// the parent.
func (n *node) mayEnd(c *container) {
	n.ordered("end " + c.id)
	n.trace.say("daemon: ends %s", c)
	p := c.process
	switch {
	case !c.pod.ours:
		n.broken("the daemon ends %s, which is none of its checkpoints", c)
	case n.activations()[c.pod.workload] != nil && n.activations()[c.pod.workload].UID == c.pod.UID:
		n.broken("the daemon ends %s, whose manifest is there", c)
	case p.readyAt != 0 && p.flock != nil && (len(p.flock.queue) < 2 || p.flock.queue[1].container.pod.role() != "parent"):
		n.broken("the daemon ends %s, which is ready, and the parent is not next", c)
	case p.flock != nil && len(p.flock.queue) > 1:
		n.mayHandOver(c, p.flock.queue[1].container.pod)
	}
}

// mayStop: a parent only in a rollback, if it holds the lock, is not ready, and
// one of ours waits for it.
func (n *node) mayStop(c *container) {
	n.ordered("stop " + c.id)
	n.ordered("end " + c.id)
	n.trace.say("daemon: stops %s", c)
	w, p := c.pod.workload, c.process
	switch c.pod.role() {
	case "checkpoint":
		seen, ok := n.rules.seen[w]
		if active := n.activations()[w]; active != nil && active.UID == c.pod.UID {
			n.broken("the daemon stops %s, whose manifest is there", c)
		} else if p != nil && p.readyAt != 0 && (!ok || n.now-seen > lag) {
			n.broken("the daemon stops %s, which is ready, and there is no parent", c)
		} else {
			n.mayHandOver(c, n.parent(w))
		}
	case "parent":
		ours := p != nil && p.flock != nil && slices.ContainsFunc(p.flock.queue, func(q *process) bool { return q.container.pod.ours })
		switch {
		case !ours:
			n.broken("the daemon stops %s, and no checkpoint waits", c)
		case !n.rollingBack(w):
			n.broken("the daemon stops %s in no rollback", c)
		case p.readyAt != 0 && n.now-p.readyAt > n.asking(2*time.Second):
			n.broken("the daemon stops %s, which is ready since %s", c, n.now-p.readyAt)
		}
	default:
		n.broken("the daemon stops %s", c)
	}
}

// open tells whether a handoff is under way; a reboot ends each.
func (n *node) open(h *store.Handoff) bool { return h != nil && h.BootID == n.boot }

func (n *node) rollingBack(w string) bool {
	record, _ := n.daemon.store.Workload(store.Key{Namespace: namespace, Workload: w})
	return n.open(record.State.Handoff) && record.State.Handoff.RollingBack
}

// opened looks at a store that was just opened.
func (n *node) opened(s *store.Store) {
	for w := range n.rules.had {
		record, _ := s.Workload(store.Key{Namespace: namespace, Workload: w})
		if len(record.Generations) == 0 {
			n.broken("%s can't be started any more: the store has no generation of it", w)
		}
		if len(record.Problems) > 0 {
			n.broken("the store has problems with %s: %v", w, record.Problems)
		}
	}
}

// records looks at what the pass has stored.
func (n *node) records() {
	r := &n.rules
	for _, w := range n.daemon.store.Workloads() {
		name := w.Key.Workload
		if len(w.Generations) == 0 {
			if r.had[name] {
				n.broken("the last generation of %s is gone", name)
			}
			continue
		}
		r.had[name] = true
		n.mayCount(name, w.State)
		if w.State.KnownGood == 0 {
			continue
		}
		i := slices.IndexFunc(w.Generations, func(g store.Generation) bool { return g.Seq == w.State.KnownGood })
		switch {
		case i < 0:
			n.broken("the known-good generation %d of %s is gone", w.State.KnownGood, name)
		case w.State.KnownGood != r.was[name].KnownGood:
			n.mayProve(name, w.Generations[i])
		}
	}
}

// mayCount: what needs the server does not fail while it is away.
func (n *node) mayCount(w string, is store.State) {
	was := n.rules.was[w]
	back := n.open(is.Handoff) && is.Handoff.RollingBack && !(n.open(was.Handoff) && was.Handoff.RollingBack)
	if n.set(w).after && n.away() && (is.Failures > was.Failures || back) {
		n.broken("%s is said to have failed, and the API server does not answer", w)
	}
}

// mayProve: a generation is known-good by a parent that began with it and was
// ready for long.
func (n *node) mayProve(w string, g store.Generation) {
	for _, c := range n.containers(w, "parent") {
		p := c.process
		if p == nil || p.serves == 0 || !strings.Contains(string(g.Pod), fmt.Sprintf(`"%s","--version=%d"`, c.pod.program, c.pod.version)) {
			continue
		}
		if w == server && n.saved(g) != p.key {
			n.broken("generation %d of %s is known-good by a parent that began with %q, not with %q", g.Seq, w, p.key, n.saved(g))
		}
		if p.readyFor(n.now, n.asking(lag)) >= config().KnownGoodAfter-n.asking(lag) || !c.pod.probed && n.now-p.serves >= config().KnownGoodAfter {
			return
		}
	}
	n.broken("generation %d of %s is known-good, and no parent proves it", g.Seq, w)
}

// bolder: a loop that has lost its memory does nothing that the other one does
// not do, or has done a moment ago: it may say it once more.
func (n *node) bolder() {
	for _, op := range n.rules.opinion {
		order := op.what
		switch verb, _, _ := strings.Cut(op.what, " "); verb {
		case "end", "stop":
		case "start":
			order = "start " + op.workload
		case "hand":
			order = "hand over " + op.workload
		default:
			continue // it only keeps a record
		}
		if at, ok := n.rules.ordered[order]; !ok || n.now-at > repeats {
			n.broken("without memory the daemon would %q: %s", op.what, op.why)
		}
	}
}

// deaf sources do not follow the wants of a loop that only gives its opinion.
type deaf struct{ *sources }

func (deaf) Want(checkpoint.Wants) {}

// opinion is what a dry loop says that it would do.
type opinion []struct{ workload, what, why string }

func (o *opinion) Enabled(context.Context, slog.Level) bool { return true }
func (o *opinion) WithAttrs([]slog.Attr) slog.Handler       { return o }
func (o *opinion) WithGroup(string) slog.Handler            { return o }

func (o *opinion) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "would act" {
		return nil
	}
	said := map[string]string{}
	r.Attrs(func(a slog.Attr) bool {
		said[a.Key] = a.Value.String()
		return true
	})
	*o = append(*o, struct{ workload, what, why string }{strings.TrimPrefix(said["pod"], namespace+"/"), said["op"], said["why"]})
	return nil
}

// mounted tells whether the payload of a static pod is there, as the kubelet
// asks before it starts a container.
func (n *node) mounted(p *pod) bool {
	for _, v := range p.Spec.Volumes {
		if v.HostPath == nil || v.HostPath.Type == nil || *v.HostPath.Type != v1.HostPathDirectory {
			continue
		}
		if _, err := n.read(strings.TrimPrefix(v.HostPath.Path, stateDir+"/")); err != nil {
			n.broken("a checkpoint of %s can't be started: %v", p.workload, err)
			return false
		}
	}
	return true
}
