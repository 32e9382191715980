package checkpoint

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/lock/probe"
)

const (
	probeCalm  = 30 * time.Second // where nothing but status hangs on the answer
	probeRest  = 5 * time.Second
	probeHurry = 200 * time.Millisecond
	probeLimit = time.Second // of one question, where the probe sets none
)

// prober asks the readiness probe of one workload, and knows of whom: on the
// host's network a probe is answered by whoever holds the port.
type prober struct {
	*poller[probed]
	question atomic.Pointer[Question]
	stop     context.CancelFunc
	asking   *atomic.Int32 // how many of the host's probers do
}

// probed is an answer, and who held the lock when the question was put.
type probed struct {
	ok     bool
	holder string
}

func (h *Host) newProber() *prober {
	ctx, stop := context.WithCancel(h.ctx)
	p := &prober{stop: stop, asking: &h.probing}
	p.poller = newPoller(Clock(h), h.heard, 10*time.Second, probeRest, probeHurry, p.askOnce)
	pace := p.every
	p.every = func(hurry bool) time.Duration {
		if q := p.question.Load(); !hurry && q != nil && q.Calm {
			return probeCalm
		}
		return pace(hurry)
	}
	h.group.Go(func() error { return p.run(ctx) })
	return p
}

// put sets the question; another holder is asked at once.
func (p *prober) put(q Question, hurry bool) {
	old := p.question.Swap(&q)
	p.press(hurry)
	if old == nil || old.Holder != q.Holder {
		p.poke()
	}
}

// askOnce puts the question.
func (p *prober) askOnce(ctx context.Context) (probed, error) {
	q := p.question.Load()
	if q == nil {
		return probed{}, nil
	}
	limit := q.Probe.Timeout
	if limit == 0 {
		limit = probeLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p.asking.Add(1)
	err := target(q.Probe).Ask(ctx)
	if p.asking.Add(-1) == 0 {
		Forget() // an answer over TLS is the most that runs at rest
	}
	return probed{ok: err == nil, holder: q.Holder}, err
}

func target(p snapshot.Probe) probe.Target {
	return probe.Target{Scheme: p.Scheme, Host: p.Host, Path: p.Path, Header: p.Header}
}

// ready is the newest answer, if it was about that holder.
func (p *prober) ready(holder string) Answer[bool] {
	a := p.answer()
	if a.At == 0 || a.Value.holder != holder {
		return Answer[bool]{}
	}
	return Answer[bool]{Value: a.Value.ok, Err: a.Err, At: a.At}
}
