package checkpoint

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// chased is the time between two questions right after a hint that the source is
	// about to have news, and chase how long they go on: containerd takes 20 to 50 ms
	// from the end of a process to telling of it.
	chased = 20 * time.Millisecond
	chase  = 300 * time.Millisecond
)

// poller asks one source on a goroutine of its own, one question at a time, so
// that a source that hangs delays neither a pass nor another source.
type poller[T any] struct {
	ask     func(ctx context.Context) (T, error)
	timeout time.Duration                  // of one question
	every   func(hurry bool) time.Duration // between two of them
	clock   Clock
	heard   func(news bool) // called after each answer: whether it is news

	// await, where there is one, takes the place of the beat at rest. It blocks for as
	// long as the source can tell by itself that value is still so, which alive says
	// too, and returns nil when it may have changed. After an error, nobody watches,
	// and the beat counts. No loss of it is worse than that.
	await func(ctx context.Context, value T, alive func()) error

	latest  atomic.Pointer[heardOf[T]]
	hurry   atomic.Bool
	chasing atomic.Int64 // until then, by the clock
	kick    chan struct{}
}

// heardOf is an answer, and until when it was still so.
type heardOf[T any] struct {
	Answer[T]
	alive atomic.Int64 // CLOCK_BOOTTIME
}

func newPoller[T any](clock Clock, heard func(news bool), timeout, rest, hurry time.Duration, ask func(context.Context) (T, error)) *poller[T] {
	return &poller[T]{
		ask: ask, timeout: timeout, clock: clock, heard: heard, kick: make(chan struct{}, 1),
		every: func(inHurry bool) time.Duration {
			if inHurry {
				return hurry
			}
			return rest
		},
	}
}

// answer is the newest one; the zero Answer until there is one.
func (p *poller[T]) answer() Answer[T] {
	a := p.latest.Load()
	if a == nil {
		return Answer[T]{}
	}
	answer := a.Answer
	answer.At = max(answer.At, time.Duration(a.alive.Load()))
	return answer
}

// amend changes the last answer, of which await has heard more. What it heard before
// stays in it.
func (p *poller[T]) amend(change func(T) T) {
	for old := p.latest.Load(); old != nil && old.Err == nil; old = p.latest.Load() {
		if p.latest.CompareAndSwap(old, &heardOf[T]{Answer: Answer[T]{Value: change(old.Value), At: p.clock.Now()}}) {
			p.heard(true)
			return
		}
	}
}

// press sets the pace; the change to hurry counts at once.
func (p *poller[T]) press(hurry bool) {
	if was := p.hurry.Swap(hurry); hurry && !was {
		p.poke()
	}
}

// poke asks again at once.
func (p *poller[T]) poke() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// chase asks again and again for a moment: the source is about to have news.
func (p *poller[T]) chase() {
	p.chasing.Store(int64(p.clock.Now() + chase))
	p.poke()
}

// run asks until ctx ends.
func (p *poller[T]) run(ctx context.Context) error {
	for hinted := false; ctx.Err() == nil; {
		p.once(ctx, hinted)
		hinted = p.pause(ctx)
	}
	return nil
}

func (p *poller[T]) once(ctx context.Context, hinted bool) {
	asked, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	value, err := p.ask(asked)
	if ctx.Err() != nil {
		return // told to stop: not an answer
	}
	old := p.latest.Swap(&heardOf[T]{Answer: Answer[T]{Value: value, Err: err, At: p.clock.Now()}})
	turned := old == nil || (old.Err == nil) != (err == nil) // it falls silent, or speaks again
	p.heard(hinted || turned)
}

// pause returns when the next question is due, and whether a hint made it so.
func (p *poller[T]) pause(ctx context.Context) (hinted bool) {
	began := time.Now()
	hurry := p.hurry.Load()
	beat := p.every(hurry)
	if p.clock.Now() < time.Duration(p.chasing.Load()) {
		hinted, beat = true, min(beat, chased)
	} else if a := p.latest.Load(); p.await != nil && !hurry && a != nil && a.Err == nil {
		changed, kicked := p.watch(ctx, a)
		if kicked {
			return true
		}
		hinted, beat = changed, p.every(changed)-time.Since(began) // or changes that follow each other would keep it busy
	}
	timer := time.NewTimer(beat)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-p.kick:
		return true
	}
	return hinted
}

// watch lets the source tell when an answer is out of date, until somebody asks.
func (p *poller[T]) watch(ctx context.Context, a *heardOf[T]) (changed, kicked bool) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan bool, 1)
	go func() {
		ended <- p.await(ctx, a.Value, func() { a.alive.Store(int64(p.clock.Now())) }) == nil
	}()
	select {
	case changed = <-ended:
		return changed, false
	case <-p.kick:
		kicked = true
	case <-ctx.Done():
	}
	stop()
	<-ended
	return false, kicked
}
