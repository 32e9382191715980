package checkpoint

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// bubbleClock is the clock of a synctest bubble.
type bubbleClock struct{ began time.Time }

func (c bubbleClock) Now() time.Duration { return time.Since(c.began) }
func (bubbleClock) Boot() string         { return boot }

// polling is a source that is asked, and how it went.
type polling struct {
	*poller[int]
	asked, heard, hinted atomic.Int64
	ask                  func(ctx context.Context, n int64) (int, error)
}

// poll asks a source with a timeout of 2s, every 10s, in a hurry every second,
// until the test ends.
func poll(t *testing.T, ask func(ctx context.Context, n int64) (int, error)) *polling {
	return pollAwaiting(t, ask, nil)
}

// pollAwaiting asks a source that tells by itself when an answer is out of date.
func pollAwaiting(t *testing.T, ask func(ctx context.Context, n int64) (int, error),
	await func(ctx context.Context, value int, alive func()) error) *polling {
	p := &polling{ask: ask}
	clock := bubbleClock{began: time.Now().Add(-time.Minute)}
	p.poller = newPoller(clock, func(hinted bool) {
		p.heard.Add(1)
		if hinted {
			p.hinted.Add(1)
		}
	}, 2*time.Second, 10*time.Second, time.Second,
		func(ctx context.Context) (int, error) { return p.ask(ctx, p.asked.Add(1)) })
	p.await = await
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done, "to be told to stop is no error")
	})
	synctest.Wait()
	return p
}

func TestPollerAsksOnABeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := poll(t, func(_ context.Context, n int64) (int, error) { return int(n), nil })
		require.Equal(t, Answer[int]{Value: 1, At: time.Minute}, p.answer(), "asked at once")
		time.Sleep(25 * time.Second)
		synctest.Wait()
		require.Equal(t, Answer[int]{Value: 3, At: time.Minute + 20*time.Second}, p.answer())
		require.EqualValues(t, 3, p.heard.Load(), "each answer wakes the loop")
	})
}

func TestPollerHurries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := poll(t, func(_ context.Context, n int64) (int, error) { return int(n), nil })
		time.Sleep(500 * time.Millisecond)
		p.press(true)
		synctest.Wait()
		require.EqualValues(t, 2, p.asked.Load(), "the change to hurry counts at once")
		p.press(true)
		synctest.Wait()
		require.EqualValues(t, 2, p.asked.Load(), "to be in a hurry still is no change")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 5, p.asked.Load())
		p.press(false)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 7, p.asked.Load(), "and rests again")
	})
}

func TestPollerAsksAtOnceWhenPoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := poll(t, func(_ context.Context, n int64) (int, error) { return int(n), nil })
		p.poke()
		p.poke()
		synctest.Wait()
		require.LessOrEqual(t, p.asked.Load(), int64(3))
		require.GreaterOrEqual(t, p.asked.Load(), int64(2))
		require.Equal(t, p.asked.Load(), p.hinted.Load(), "each is news, as the first one was")
	})
}

func TestPollerChasesNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := poll(t, func(_ context.Context, n int64) (int, error) { return int(n), nil })
		p.chase()
		time.Sleep(chase)
		synctest.Wait()
		many := p.asked.Load()
		require.InDelta(t, chase/chased, many, 2)
		require.Equal(t, many, p.hinted.Load())
		time.Sleep(9 * time.Second)
		synctest.Wait()
		require.LessOrEqual(t, p.asked.Load(), many+1, "then it rests")
	})
}

func TestPollerAwaitsAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changed, awaited := make(chan error), make(chan func(), 1)
		p := pollAwaiting(t, func(_ context.Context, n int64) (int, error) { return int(n), nil },
			func(ctx context.Context, _ int, alive func()) error {
				awaited <- alive
				select {
				case err := <-changed:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		alive := <-awaited
		time.Sleep(time.Hour)
		synctest.Wait()
		require.EqualValues(t, 1, p.asked.Load(), "it is not asked while it watches itself")
		require.Equal(t, time.Minute, p.answer().At)
		alive()
		require.Equal(t, Answer[int]{Value: 1, At: time.Hour + time.Minute}, p.answer(), "its answer is as new as its last sign of life")

		changed <- nil
		alive = <-awaited
		require.EqualValues(t, 2, p.asked.Load(), "a change counts at once")
		require.EqualValues(t, 2, p.hinted.Load(), "as the first one was")
		changed <- nil
		synctest.Wait()
		require.EqualValues(t, 2, p.asked.Load(), "changes that follow each other are asked for as in a hurry")
		time.Sleep(time.Second)
		<-awaited
		require.EqualValues(t, 3, p.asked.Load())
		alive()
		require.Equal(t, p.latest.Load().At, p.answer().At, "an old watch says nothing of a new answer")

		time.Sleep(time.Minute)
		changed <- errors.New("lost")
		<-awaited
		require.EqualValues(t, 4, p.asked.Load(), "a watch that is lost is followed by a question")
		changed <- errors.New("lost")
		synctest.Wait()
		require.EqualValues(t, 4, p.asked.Load(), "and one that is lost at once by the beat")
		time.Sleep(10 * time.Second)
		<-awaited
		require.EqualValues(t, 5, p.asked.Load())

		p.press(true)
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 8, p.asked.Load(), "in a hurry nobody watches")
		require.Empty(t, awaited)
	})
}

func TestPollerAwaitsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pollAwaiting(t, func(context.Context, int64) (int, error) { return 0, errors.New("refused") },
			func(context.Context, int, func()) error {
				t.Error("there is nothing to watch")
				return nil
			})
		time.Sleep(25 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 3, p.asked.Load())
	})
}

// A source that hangs is asked by one question at a time, however often it is
// poked; what it said before grows old and is told as what it is.
func TestPollerBoundsASourceThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var flying, most atomic.Int64
		p := poll(t, func(ctx context.Context, n int64) (int, error) {
			most.Store(max(most.Load(), flying.Add(1)))
			defer flying.Add(-1)
			if n == 1 {
				return 1, nil
			}
			<-ctx.Done()
			return 0, ctx.Err()
		})
		for range 10 {
			p.poke()
			synctest.Wait()
			require.Equal(t, time.Minute, p.answer().At, "still the first answer")
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.ErrorIs(t, p.answer().Err, context.DeadlineExceeded)
		require.Equal(t, time.Minute+2*time.Second, p.answer().At)
		require.EqualValues(t, 1, most.Load())
	})
}

func TestPollerRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("connection refused")
		p := poll(t, func(_ context.Context, n int64) (int, error) {
			if n == 1 {
				return 0, refused
			}
			return int(n), nil
		})
		require.ErrorIs(t, p.answer().Err, refused)
		require.EqualValues(t, 1, p.hinted.Load())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, Answer[int]{Value: 2, At: time.Minute + 10*time.Second}, p.answer())
		require.EqualValues(t, 2, p.hinted.Load(), "that it answers is news")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 2, p.hinted.Load(), "that it still does is none")
	})
}

func TestPollerThatIsToldToStopHasHeardNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPoller(bubbleClock{}, func(bool) { t.Error("heard") }, time.Hour, time.Hour, time.Hour,
			func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			})
		require.Zero(t, p.answer(), "nothing before the first answer")
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		require.NoError(t, p.run(ctx))
		require.Zero(t, p.answer())
	})
}

func TestPollerIsToldMoreThanOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := poll(t, func(_ context.Context, n int64) (int, error) {
			if n > 1 {
				return 0, errors.New("down")
			}
			return 1, nil
		})
		p.amend(func(n int) int { return n + 10 })
		p.amend(func(n int) int { return n + 100 })
		require.Equal(t, 111, p.answer().Value)
		require.EqualValues(t, 2, p.hinted.Load()-1, "each is news")

		time.Sleep(10 * time.Second)
		synctest.Wait()
		p.amend(func(int) int { return 7 })
		require.Error(t, p.answer().Err, "an error is no answer to add to")
	})
}
