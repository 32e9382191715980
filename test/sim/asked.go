package sim

import (
	"context"
	"errors"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/data"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

var (
	errDown    = errors.New("connection refused")
	errTimeout = errors.New("deadline exceeded")
)

// slowProbe is how long a probe may take in bad times.
const slowProbe = 5 * time.Second

// asked is a source that is asked in the background: its answer is older than it
// looks, because it is dated when it arrives.
type asked[T any] struct {
	answer  checkpoint.Answer[T]
	pending checkpoint.Answer[T]
	arrives time.Duration // of pending; 0: none is under way
	next    time.Duration // when the next question is put
}

// step puts the question when it is due, and takes the answer in.
func (a *asked[T]) step(n *node, beat, latency time.Duration, silent bool, ask func() (T, error)) {
	if a.arrives != 0 && n.now >= a.arrives {
		a.answer, a.arrives = a.pending, 0
		a.answer.At = n.boottime()
		a.next = n.now + beat
	}
	if a.arrives != 0 || n.now < a.next {
		return
	}
	value, err := ask()
	a.arrives = n.now + n.between(0, latency)
	if silent {
		var none T
		value, err = none, errTimeout
		a.arrives = n.now + time.Second
	}
	a.pending = checkpoint.Answer[T]{Value: value, Err: err}
}

// hurry has a source asked now that was resting.
func (a *asked[T]) hurry(n *node) { a.next = min(a.next, n.now) }

// sources are those of the daemon's process; they are empty when it starts.
type sources struct {
	n       *node
	wants   checkpoint.Wants
	pods    asked[[]cri.Pod]
	images  asked[map[string]checkpoint.Image]
	kubelet asked[kubelet.View]
	api     asked[*api.View]
	probes  map[store.Key]*asked[probed]
}

type probed struct {
	ok     bool
	holder string
}

var (
	_ checkpoint.Sources = (*sources)(nil)
	_ checkpoint.Effects = (*sources)(nil)
	_ checkpoint.Clock   = (*sources)(nil)
)

// step lets the questions that are under way go on.
func (s *sources) step() {
	n := s.n
	const latency = 300 * time.Millisecond
	asking := latency
	if n.now < n.probesSlow {
		asking = slowProbe
	}
	beat := func(rest, hurry time.Duration) time.Duration {
		if s.wants.Hurry {
			return hurry
		}
		return rest
	}
	s.pods.step(n, beat(time.Second, 100*time.Millisecond), latency, n.now < n.runtimeSilent, func() ([]cri.Pod, error) { return n.runtime.pods(), nil })
	s.images.step(n, 30*time.Second, latency, n.now < n.runtimeSilent, func() (map[string]checkpoint.Image, error) {
		present := map[string]checkpoint.Image{}
		for _, image := range s.wants.Images {
			present[image] = checkpoint.Image{Present: true, Asks: checkpoint.Known(false)}
		}
		return present, nil
	})
	s.kubelet.step(n, beat(2*time.Second, 250*time.Millisecond), latency, n.now < n.kubeletSilent, n.kubeletView)
	s.api.step(n, beat(5*time.Second, 2*time.Second), latency, n.now < n.apiSilent, func() (*api.View, error) {
		if !n.apiUp() {
			return nil, errDown
		}
		return n.apiView(), nil
	})
	for _, name := range workloads { // in an order of its own, as a map has none
		key := store.Key{Namespace: namespace, Workload: name}
		question, wanted := s.wants.Probes[key]
		if !wanted {
			delete(s.probes, key)
			continue
		}
		if s.probes[key] == nil {
			s.probes[key] = &asked[probed]{}
		}
		s.probes[key].step(n, beat(5*time.Second, 200*time.Millisecond), asking, false, func() (probed, error) {
			return probed{n.answers(question.Probe), question.Holder}, nil
		})
	}
}

// answers is what a probe of the node says: the answer is that of whoever has
// bound the port, not of whom the question was about.
func (n *node) answers(probe snapshot.Probe) bool {
	for _, c := range n.runtime.containers((*container).live) {
		if probe.Host == addresses[c.pod.workload] && c.process != nil && n.ready(c.process) {
			return true
		}
	}
	return false
}

func (s *sources) Now() time.Duration                                     { return s.n.boottime() }
func (s *sources) Boot() string                                           { return s.n.boot }
func (s *sources) Pods() checkpoint.Answer[[]cri.Pod]                     { return s.pods.answer }
func (s *sources) Images() checkpoint.Answer[map[string]checkpoint.Image] { return s.images.answer }
func (s *sources) Kubelet() checkpoint.Answer[kubelet.View]               { return s.kubelet.answer }
func (s *sources) API() checkpoint.Answer[*api.View]                      { return s.api.answer }

// No program here needs a data directory.
func (s *sources) Data(string) checkpoint.Answer[data.Fingerprint] {
	return checkpoint.Answer[data.Fingerprint]{}
}

// No program here mounts a token, or has to be asked for what it runs.
func (s *sources) Token(checkpoint.TokenWant) checkpoint.Answer[api.Token] {
	return checkpoint.Answer[api.Token]{}
}
func (s *sources) Entrypoint(string) checkpoint.Answer[*snapshot.Image] {
	return checkpoint.Answer[*snapshot.Image]{}
}
func (s *sources) Certificate(checkpoint.Trust) checkpoint.Answer[string] {
	return checkpoint.Answer[string]{}
}

// Outside is nobody.
func (s *sources) Outside() checkpoint.Answer[[]string] { return checkpoint.Answer[[]string]{} }

// LockExec is where it has to be.
func (s *sources) LockExec() error { return nil }

// Lock is read from the kernel, so it is never old.
func (s *sources) Lock(path string) (lock.State, error) {
	n := s.n
	if n.now < n.lockUnreadable {
		return lock.State{}, errors.New("read /proc/locks: permission denied")
	}
	if path == store.LockPath(stateDir) { // the daemon is in no pod here, and has no rival
		return lock.State{Path: path, Exists: true}, nil
	}
	f, ok := n.locks[path]
	if n.reads++; n.reads > locked && ok && len(f.queue) > 1 && !n.calm && n.rng.IntN(4) == 0 {
		n.raced = true
		n.kill(f.queue[1].container, "ended between two looks at the lock table")
	}
	state := lock.State{Path: path, Exists: ok}
	if !ok {
		return state, nil
	}
	for i, p := range f.queue {
		if i == 0 {
			state.Holder = new(p.inTable())
		} else {
			state.Waiters = append(state.Waiters, p.inTable())
		}
	}
	return state, nil
}

func (p *process) inTable() lock.Process {
	return lock.Process{PID: p.pid, StartTime: uint64(p.pid), ContainerID: p.container.id, PodUID: string(p.container.pod.UID)}
}

// Ready is the newest answer about that holder.
func (s *sources) Ready(key store.Key, holder string) checkpoint.Answer[bool] {
	p, ok := s.probes[key]
	if !ok || p.answer.At == 0 || p.answer.Value.holder != holder {
		return checkpoint.Answer[bool]{}
	}
	return checkpoint.Answer[bool]{Value: p.answer.Value.ok, At: p.answer.At}
}

// Want sets the pace, and what is asked.
func (s *sources) Want(w checkpoint.Wants) {
	hurry := w.Hurry && !s.wants.Hurry
	for key, question := range w.Probes {
		if old := s.wants.Probes[key]; s.probes[key] != nil && (hurry || old.Holder != question.Holder) {
			s.probes[key].hurry(s.n)
		}
	}
	if len(w.Images) != len(s.wants.Images) {
		s.images.hurry(s.n)
	}
	if hurry {
		s.pods.hurry(s.n)
		s.kubelet.hurry(s.n)
		s.api.hurry(s.n)
	}
	s.wants = w
}

// EndProcess ends a process, if it still is the one that is meant.
func (s *sources) EndProcess(_ context.Context, p lock.Process, grace time.Duration) error {
	for _, c := range s.n.runtime.containers((*container).live) {
		if c.process != nil && c.process.inTable() == p {
			s.n.mayEnd(c)
			s.n.stop(c, grace)
		}
	}
	return nil
}

// StopContainer stops a container, if the runtime listens.
func (s *sources) StopContainer(_ context.Context, id string, grace time.Duration) error {
	for _, c := range s.n.runtime.containers((*container).live) {
		if c.id == id {
			s.n.mayStop(c)
			if s.n.now >= s.n.runtimeSilent {
				s.n.stop(c, grace)
			}
		}
	}
	return nil
}
