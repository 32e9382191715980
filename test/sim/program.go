package sim

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
)

// program is how a guarded program behaves, by its first argument.
type program string

const (
	good   program = "--good"
	sleeps program = "--sleeps" // takes the lock and is never ready
	exits  program = "--exits"  // takes the lock and ends
	fails  program = "--fails"  // ends before it has taken the lock
)

var bad = []program{sleeps, exits, fails}

// pod is a pod as the kubelet got it, with what the model reads out of it.
type pod struct {
	*v1.Pod
	workload string
	source   string // api or file
	ours     bool   // a checkpoint
	program  program
	version  int
	lock     string // path; "": none
	after    bool   // it can't live without the API server
	probed   bool   // else to run is all that anybody can see of it
	grace    time.Duration
}

func newPod(object *v1.Pod, source string) *pod {
	p := &pod{Pod: object, source: source, grace: 30 * time.Second}
	if of := object.Annotations[snapshot.AnnotationCheckpointOf]; of != "" {
		p.ours = true
		p.workload = of[len(namespace)+1:]
	} else if len(object.OwnerReferences) > 0 {
		p.workload = object.OwnerReferences[0].Name
	}
	c := object.Spec.Containers[0]
	p.probed = c.ReadinessProbe != nil
	p.after = object.Annotations[snapshot.AnnotationAfter] != ""
	if len(c.Args) > 1 {
		p.program = program(c.Args[0])
		_, _ = fmt.Sscanf(c.Args[1], "--version=%d", &p.version)
	}
	if len(c.Command) > 2 && c.Command[1] == "--lock" {
		p.lock = c.Command[2]
	}
	if g := object.Spec.TerminationGracePeriodSeconds; g != nil {
		p.grace = time.Duration(*g) * time.Second
	}
	return p
}

func (p *pod) activation() string { return p.Annotations[snapshot.AnnotationActivation] }

func (p *pod) role() string {
	switch {
	case p.ours:
		return "checkpoint"
	case p.source == "api":
		return "parent"
	}
	return "foreign"
}

// process is one run of a program.
type process struct {
	pid       int
	container *container
	flock     *flock
	warmup    time.Duration // from serving to ready
	serves    time.Duration // since when it holds its lock, or runs where there is none; 0: it waits
	readyAt   time.Duration // since when it is ready; 0: it is not
	wasReady  time.Duration // for how long it was, when it last ceased to be
	ceased    time.Duration // when that was
	met       time.Duration // when it last met an API server that answered; 0: never
	key       string        // what it read of the Secret when it began
	dies      time.Duration // when it ends; 0: nobody told it to
}

// readyFor is how long it has been ready, or was until a moment ago: how long that is,
// is for the caller to say.
func (p *process) readyFor(now, moment time.Duration) time.Duration {
	switch {
	case p.readyAt != 0:
		return now - p.readyAt
	case p.ceased != 0 && now-p.ceased <= moment:
		return p.wasReady
	}
	return 0
}

// flock is one lock file: the first holds it, the others wait in the order in
// which the kernel will serve them.
type flock struct {
	path  string
	queue []*process
}

func (f *flock) holder() *process {
	if f == nil || len(f.queue) == 0 {
		return nil
	}
	return f.queue[0]
}

func (f *flock) leave(p *process, now time.Duration) {
	for i, q := range f.queue {
		if q == p {
			f.queue = append(f.queue[:i:i], f.queue[i+1:]...)
			break
		}
	}
	if h := f.holder(); h != nil && h.serves == 0 {
		h.serves = now
	}
}
