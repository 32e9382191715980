package checkpoint

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnAskerAsksWhatIsWantedAndSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex // of what follows
		var asked []string
		var broken error
		var heard atomic.Int64
		a := newAsker(bubbleClock{began: time.Now().Add(-time.Minute)}, func(bool) { heard.Add(1) }, time.Second, goodFor(func(string) time.Duration { return time.Hour }),
			func(_ context.Context, question string) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, question)
				return "answer to " + question, broken
			})
		done := make(chan error)
		go func() { done <- a.run(ctx) }()
		after := func(d time.Duration) []string {
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			was := asked
			asked = nil
			return was
		}
		require.Zero(t, a.answer("a"))
		a.want([]string{"a", "b"})
		require.Equal(t, []string{"a", "b"}, after(0))
		require.Equal(t, "answer to a", a.answer("a").Value)
		require.EqualValues(t, 2, heard.Load())
		a.want([]string{"a", "b"})
		require.Empty(t, after(59*time.Minute), "an answer is good for its life")
		require.Equal(t, []string{"a", "b"}, after(time.Minute))

		a.want([]string{"b", "c"})
		require.Equal(t, []string{"c"}, after(0))
		require.Zero(t, a.answer("a"), "what nobody wants is forgotten")

		breaks := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			broken = err
		}
		down := errors.New("it is down")
		breaks(down)
		a.want([]string{"d"})
		require.Equal(t, []string{"d"}, after(0))
		require.Equal(t, down, a.answer("d").Err)
		require.Equal(t, []string{"d"}, after(errandAgain))
		breaks(nil)
		require.Equal(t, []string{"d"}, after(errandAgain))
		require.NoError(t, a.answer("d").Err)

		a.want(nil)
		require.Empty(t, after(24*time.Hour))
		stop()
		require.NoError(t, <-done)
	})
}

func TestAnAskerGivesUpInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		a := newAsker(bubbleClock{began: time.Now().Add(-time.Minute)}, func(bool) {}, time.Second, goodFor(func(string) time.Duration { return time.Hour }),
			func(ctx context.Context, _ string) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			})
		done := make(chan error)
		go func() { done <- a.run(ctx) }()
		a.want([]string{"hangs"})
		time.Sleep(time.Second)
		synctest.Wait()
		require.ErrorIs(t, a.answer("hangs").Err, context.DeadlineExceeded)
		time.Sleep(errandAgain)
		a.want(nil) // while it is asked
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, a.answer("hangs"))
		stop()
		require.NoError(t, <-done)
	})
}
