package checkpoint

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// asker finds answers to questions that come up seldom, on a goroutine of its own and
// one at a time. It asks each as long as it is wanted: at once, and again when the
// answer is old. It sleeps while there are none.
type asker[Q comparable, A any] struct {
	ask     func(ctx context.Context, question Q) (A, error)
	timeout time.Duration
	lasts   func(Answer[A]) time.Duration // for how long an answer is good
	clock   Clock
	heard   func(news bool)

	mu      sync.Mutex
	wanted  []Q
	answers map[Q]Answer[A]
	changed chan struct{}
}

func newAsker[Q comparable, A any](clock Clock, heard func(bool), timeout time.Duration, lasts func(Answer[A]) time.Duration, ask func(context.Context, Q) (A, error)) *asker[Q, A] {
	return &asker[Q, A]{ask: ask, timeout: timeout, lasts: lasts, clock: clock, heard: heard, answers: map[Q]Answer[A]{}, changed: make(chan struct{}, 1)}
}

// goodFor says how long answers last: those that are errors until errandAgain.
func goodFor[A any](life func(A) time.Duration) func(Answer[A]) time.Duration {
	return func(a Answer[A]) time.Duration {
		if a.Err != nil {
			return errandAgain
		}
		return life(a.Value)
	}
}

// want sets the questions, in the order in which they are asked. The answers to all
// others are forgotten.
func (a *asker[Q, A]) want(questions []Q) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Equal(a.wanted, questions) {
		return
	}
	a.wanted = slices.Clone(questions)
	maps.DeleteFunc(a.answers, func(q Q, _ Answer[A]) bool { return !slices.Contains(questions, q) })
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// answer is the newest one; the zero Answer until there is one.
func (a *asker[Q, A]) answer(question Q) Answer[A] {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answers[question]
}

// run asks until ctx ends.
func (a *asker[Q, A]) run(ctx context.Context) error {
	for ctx.Err() == nil {
		question, in, any := a.next()
		switch {
		case any && in <= 0:
			a.once(ctx, question)
		case any:
			a.sleep(ctx, time.After(in))
		default:
			a.sleep(ctx, nil)
		}
	}
	return nil
}

func (a *asker[Q, A]) sleep(ctx context.Context, due <-chan time.Time) {
	select {
	case <-ctx.Done():
	case <-a.changed:
	case <-due:
	}
}

// next is the question that is due first, and in what time.
func (a *asker[Q, A]) next() (first Q, in time.Duration, any bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	for _, question := range a.wanted {
		due := time.Duration(0)
		if answer := a.answers[question]; answer.At != 0 {
			due = answer.At + a.lasts(answer) - now
		}
		if !any || due < in {
			first, in, any = question, due, true
		}
	}
	return first, in, any
}

func (a *asker[Q, A]) once(ctx context.Context, question Q) {
	asked, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	value, err := a.ask(asked, question)
	if ctx.Err() != nil {
		return // told to stop: not an answer
	}
	a.mu.Lock()
	if slices.Contains(a.wanted, question) {
		a.answers[question] = Answer[A]{Value: value, Err: err, At: a.clock.Now()}
	}
	a.mu.Unlock()
	a.heard(true)
}
