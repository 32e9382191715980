package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/cri"
)

// runtime holds sandboxes and containers; both outlive a power cut, as history.
type runtime struct {
	sandboxes []*sandbox // oldest first
}

type sandbox struct {
	id         string
	pod        *pod
	attempt    uint32
	ready      bool
	created    time.Duration
	containers []*container // oldest first
}

type container struct {
	id      string
	pod     *pod
	attempt uint32
	state   cri.State
	created time.Duration
	ended   time.Duration
	process *process // nil: not yet, or not any more
}

func (c *container) String() string {
	return fmt.Sprintf("%s %s %s", c.pod.workload, c.pod.role(), c.id)
}

func (c *container) live() bool { return c.state != cri.Exited }

// of are the sandboxes of one pod, oldest first.
func (r *runtime) of(uid string) []*sandbox {
	var found []*sandbox
	for _, s := range r.sandboxes {
		if string(s.pod.UID) == uid {
			found = append(found, s)
		}
	}
	return found
}

// standing is the pod's ready sandbox, nil if none is.
func (r *runtime) standing(uid string) *sandbox {
	for _, s := range r.of(uid) {
		if s.ready {
			return s
		}
	}
	return nil
}

// containers are all of them, oldest sandbox first.
func (r *runtime) containers(match func(*container) bool) []*container {
	var found []*container
	for _, s := range r.sandboxes {
		for _, c := range s.containers {
			if match(c) {
				found = append(found, c)
			}
		}
	}
	return found
}

// pods is what ListPodSandbox and ListContainers tell.
func (r *runtime) pods() []cri.Pod {
	byUID := map[string]*cri.Pod{}
	for _, s := range slices.Backward(r.sandboxes) {
		uid := string(s.pod.UID)
		p := byUID[uid]
		if p == nil {
			p = &cri.Pod{Namespace: s.pod.Namespace, Name: s.pod.Name, UID: uid, Source: s.pod.source}
			byUID[uid] = p
		}
		annotations := map[string]string{"kubernetes.io/config.source": s.pod.source}
		maps.Copy(annotations, s.pod.Annotations)
		p.Sandboxes = append(p.Sandboxes, cri.Sandbox{
			ID: s.id, Attempt: s.attempt, Ready: s.ready, CreatedAt: wall(s.created), Annotations: annotations,
		})
		if n := len(s.containers); n > 0 && len(p.Containers) == 0 {
			c := s.containers[n-1]
			p.Containers = []cri.Container{{
				ID: c.id, Name: s.pod.Spec.Containers[0].Name, Image: s.pod.Spec.Containers[0].Image,
				Attempt: c.attempt, State: c.state, CreatedAt: wall(c.created),
			}}
		}
	}
	var pods []cri.Pod
	for _, p := range byUID {
		pods = append(pods, *p)
	}
	slices.SortFunc(pods, func(a, b cri.Pod) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) })
	return pods
}

func wall(t time.Duration) time.Time { return time.Unix(1_800_000_000, 0).Add(t) }

// newSandbox starts a pod once more.
func (n *node) newSandbox(p *pod) *sandbox {
	n.ids++
	attempt := uint32(len(n.runtime.of(string(p.UID))))
	s := &sandbox{id: fmt.Sprintf("s%d", n.ids), pod: p, attempt: attempt, ready: true, created: n.now}
	n.runtime.sandboxes = append(n.runtime.sandboxes, s)
	return s
}

// newContainer starts the program of a pod once more.
func (n *node) newContainer(s *sandbox) {
	n.ids++
	attempt := uint32(len(n.runtime.containers(func(c *container) bool { return c.pod.UID == s.pod.UID })))
	c := &container{id: fmt.Sprintf("c%d", n.ids), pod: s.pod, attempt: attempt, state: cri.Created, created: n.now}
	s.containers = append(s.containers, c)
	n.trace.say("runtime: created %s attempt %d", c, attempt)
}

// patience is how long a client lives without an API server: leader election gives
// up then.
const patience = 10 * time.Second

// run lets the programs run for one step.
func (n *node) run() {
	up := n.apiUp()
	for _, c := range n.runtime.containers((*container).live) {
		if c.state == cri.Created {
			n.exec(c)
			continue
		}
		p := c.process
		if up {
			p.met = n.now
		}
		switch {
		case c.pod.after && p.serves != 0 && n.now-max(p.serves, p.met) > patience:
			n.kill(c, "failed: no API server")
		case p.dies != 0 && n.now >= p.dies:
			n.kill(c, "ended")
		case p.serves == n.now-step && n.taken(c):
			n.kill(c, "failed: its port is in use")
		case c.pod.program == fails && n.now-c.created > 300*time.Millisecond,
			c.pod.program == exits && p.serves != 0 && n.now-p.serves > time.Second,
			p.serves != 0 && n.sickness == exits && n.sick(c):
			n.kill(c, "failed")
		case n.ready(p) && p.readyAt == 0:
			p.readyAt = n.now
			n.trace.say("program: %s is ready", c)
		case p.readyAt != 0 && n.now-p.readyAt == 50*time.Second:
			delete(n.rules.handed, string(c.pod.UID))
		case !n.ready(p) && p.readyAt != 0:
			p.wasReady, p.ceased, p.readyAt = n.now-p.readyAt, n.now, 0
			n.trace.say("program: %s is not ready any more", c)
		}
	}
}

// exec begins the process of a container, at the end of the queue.
func (n *node) exec(c *container) {
	c.state = cri.Running
	n.pids++
	p := &process{pid: n.pids, container: c, warmup: n.between(500*time.Millisecond, 4*time.Second) + n.slowness}
	p.key = string(n.cluster.payload())
	c.process = p
	if c.pod.lock == "" {
		p.serves = n.now
		return
	}
	f := n.locks[c.pod.lock]
	if f == nil {
		f = &flock{path: c.pod.lock}
		n.locks[c.pod.lock] = f
	}
	p.flock = f
	f.queue = append(f.queue, p)
	if f.holder() == p {
		p.serves = n.now
	}
	n.trace.say("program: %s %s the lock", c, map[bool]string{true: "holds", false: "waits for"}[f.holder() == p])
}

// taken tells whether another program has the port that this one needs. One that
// sleeps takes none.
func (n *node) taken(c *container) bool {
	if c.pod.workload != controller || !n.cluster.sets[1].port {
		return false
	}
	return slices.ContainsFunc(n.runtime.containers((*container).live), func(o *container) bool {
		return o != c && o.pod.workload == controller && o.pod.program == good && o.process != nil && o.process.serves < n.now-step
	})
}

// sick tells whether something outside of the program keeps it from working.
func (n *node) sick(c *container) bool {
	return n.now < n.sickUntil && (n.sickAll || !c.pod.ours) && c.pod.workload != ""
}

// ready is what the readiness probe would say of a process.
func (n *node) ready(p *process) bool {
	c := p.container
	if c.pod.after && p.met < p.serves {
		return false
	}
	return p.serves != 0 && n.now-p.serves >= p.warmup && (c.pod.program == good && !n.sick(c) || !c.pod.probed)
}

// kill ends a process at once.
func (n *node) kill(c *container, why string) {
	if !c.live() {
		return
	}
	n.trace.say("runtime: %s %s", c, why)
	if p := c.process; p != nil && p.flock != nil {
		p.flock.leave(p, n.now)
		if h := p.flock.holder(); h != nil && h.serves == n.now {
			n.trace.say("program: %s holds the lock", h.container)
		}
	}
	c.process, c.state, c.ended = nil, cri.Exited, n.now
}

// stop sends SIGTERM, and SIGKILL after grace. A program that waits for its lock
// ends at once, one that serves takes its time.
func (n *node) stop(c *container, grace time.Duration) {
	if !c.live() {
		return
	}
	if c.process == nil || c.process.serves == 0 || grace == 0 {
		n.kill(c, "stopped")
		return
	}
	end := n.now + min(grace, n.between(0, 20*time.Second))
	if c.process.dies == 0 || end < c.process.dies {
		c.process.dies = end
	}
}
