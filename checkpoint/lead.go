package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// A node has two copies of the daemon: a pod of the DaemonSet, and a static pod
// that is there when no API server is. The one that holds the writer's lock of
// the store leads; the other waits for that lock in the kernel, and does nothing.

// ErrYield is how a Loop ends its Run where another copy is to lead.
var ErrYield = errors.New("another copy of the daemon leads next")

// Self is this copy of the daemon, as lock table and runtime show it. The zero
// value is one that is in no pod, or whose pod is not known yet.
type Self struct {
	PodUID      string
	ContainerID string
	Namespace   string // of the pod
	Name        string
	Source      string // "api" or "file": where the kubelet has the pod from
}

// String names it to people.
func (s Self) String() string {
	switch {
	case s.Name != "":
		return s.Namespace + "/" + s.Name
	case s.PodUID != "":
		return "pod " + s.PodUID
	}
	return "a daemon outside of any pod"
}

// instance is a copy of the daemon, this one or one that waits.
type instance struct {
	Self
	Format int           // of the store, which it can read by what its pod says; 0: it says none
	Image  string        // of its container
	Waits  time.Duration // for how long it was seen to wait
}

// secondFor is how long two copies of one source stand beside each other before
// one is too many: one that ends takes its grace.
const secondFor = time.Minute

// yields tells to whom a leader makes way, "" for nobody, and what a person ought
// to know of those who wait. A static copy makes way for a pod of the API server,
// which is how a new version takes over; no other leader makes way. Only who can
// read the store gets a turn, and the kernel serves in this order: so it counts
// who stands before that pod as well.
func yields(self instance, format int, waiting []instance) (to string, findings []string) {
	passed := self.Source == "file" // so far nobody was met who may not have a turn
	for _, w := range waiting {
		readable := w.Format >= format
		if passed && readable && w.Source == "api" {
			to, passed = w.String(), false
		}
		passed = passed && readable && w.Source == "file"
		switch {
		case w.Source == "": // not a pod, or not known yet
		case !readable:
			findings = append(findings, fmt.Sprintf("NewerFormat: %s (image %s) can read format %d of the store, which has %d: it gets no turn; image %s can read it",
				w, w.Image, w.Format, format, self.Image))
		case w.Waits >= secondFor && (w.Source == self.Source || w.Source == "api" && self.PodUID == ""):
			findings = append(findings, fmt.Sprintf("SecondDaemon: %s leads and %s waits: one node needs one of them, remove the other", self, w))
		}
	}
	return to, findings
}

// lead fills in which copy this is and who waits for its lock. What the runtime
// does not tell stays the zero value, to which nobody makes way.
func (o *observer) lead(s *sight) {
	if o.config.DryRun { // which holds no lock
		return
	}
	state, err := o.sources.Lock(store.LockPath(o.config.StateDir))
	if err != nil || state.Holder == nil {
		return
	}
	pods, _ := s.pods.Value()
	s.self = instanceOf(*state.Holder, pods)
	for _, process := range state.Waiters {
		w := instanceOf(process, pods)
		w.Waits = s.at - o.watch.since("copy "+strconv.Itoa(process.PID)+" "+w.PodUID, w.Source)
		s.waiting = append(s.waiting, w)
	}
}

// arbitrate notes who leads, who waits, and whether another one is to lead.
func (l *Loop) arbitrate(s *sight, status *Status) {
	if s.self.Name != "" {
		status.Leader = s.self.String()
	}
	for _, w := range s.waiting {
		status.Waiting = append(status.Waiting, w.String())
	}
	if s.self.Name != "" && s.self.Self != l.leader {
		l.leader = s.self.Self
		l.log.Info("leads as a pod", "pod", l.leader.String(), "from", l.leader.Source, "container", l.leader.ContainerID)
	}
	var findings []string
	l.next, findings = yields(s.self, store.Format, s.waiting)
	status.Problems = append(status.Problems, findings...)
}

func instanceOf(process lock.Process, pods []cri.Pod) instance {
	c := instance{Self: Self{PodUID: process.PodUID, ContainerID: process.ContainerID}}
	for _, pod := range pods {
		if process.PodUID == "" || pod.UID != process.PodUID {
			continue
		}
		c.Namespace, c.Name, c.Source = pod.Namespace, pod.Name, pod.Source
		c.Format, _ = strconv.Atoi(pod.Annotation(snapshot.AnnotationFormat)) // none is 0
		for _, container := range pod.Containers {
			if container.ID == c.ContainerID || c.ContainerID == "" && container.State == cri.Running {
				c.ContainerID, c.Image = container.ID, container.Image
				break
			}
		}
	}
	return c
}

// Leader says in words who leads on the node: who has the writer's lock.
func Leader(c Config) string {
	state, err := lock.Inspect(c.Proc, store.LockPath(c.StateDir))
	switch {
	case err != nil:
		return err.Error()
	case state.Holder == nil:
		return "nobody leads yet"
	}
	p := *state.Holder
	words := fmt.Sprintf("process %d", p.PID)
	if p.ContainerID != "" {
		words += ", container " + p.ContainerID
	}
	if p.PodUID != "" {
		words += ", pod " + p.PodUID
	}
	return words + " leads"
}

// watchBeat is how often Watch looks.
const watchBeat = 5 * time.Second

// Watch returns an error once no pass has ended for 30 seconds, and nil when ctx
// ends. It counts its own beats, so that no time counts in which the machine slept
// or the process was stopped.
func (l *Loop) Watch(ctx context.Context) error {
	beat := time.NewTicker(watchBeat)
	defer beat.Stop()
	last, idle := l.Status(), time.Duration(0)
	for idle < passLimit {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
		}
		if now := l.Status(); now != last {
			last, idle = now, 0
			continue
		}
		idle += watchBeat
	}
	return fmt.Errorf("no pass has ended for %s", passLimit)
}
