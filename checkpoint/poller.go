package checkpoint

import (
	"context"
	"sync/atomic"
	"time"
)

// poller asks one source on a goroutine of its own, one question at a time, so
// that a source that hangs delays neither a pass nor another source.
type poller[T any] struct {
	ask     func(ctx context.Context) (T, error)
	timeout time.Duration                  // of one question
	every   func(hurry bool) time.Duration // between two of them
	clock   Clock
	heard   func() // called after each answer

	latest atomic.Pointer[Answer[T]]
	hurry  atomic.Bool
	kick   chan struct{}
}

func newPoller[T any](clock Clock, heard func(), timeout, rest, hurry time.Duration, ask func(context.Context) (T, error)) *poller[T] {
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
	if a := p.latest.Load(); a != nil {
		return *a
	}
	return Answer[T]{}
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

// run asks until ctx ends.
func (p *poller[T]) run(ctx context.Context) error {
	for ctx.Err() == nil {
		p.once(ctx)
		timer := time.NewTimer(p.every(p.hurry.Load()))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-p.kick:
		}
		timer.Stop()
	}
	return nil
}

func (p *poller[T]) once(ctx context.Context) {
	asked, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	value, err := p.ask(asked)
	if ctx.Err() != nil {
		return // told to stop: not an answer
	}
	p.latest.Store(&Answer[T]{Value: value, Err: err, At: p.clock.Now()})
	p.heard()
}
