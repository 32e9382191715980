package checkpoint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWatchRemembersSinceWhen(t *testing.T) {
	w := newWatch()
	w.begin(10 * time.Second)
	require.Equal(t, 10*time.Second, w.since("holder", "a"))
	w.begin(20 * time.Second)
	require.Equal(t, 10*time.Second, w.since("holder", "a"), "the same value since then")
	require.Equal(t, 20*time.Second, w.since("ready", "a"), "another key has its own time")
	w.begin(30 * time.Second)
	require.Equal(t, 30*time.Second, w.since("holder", "b"), "another value begins anew")
	w.begin(40 * time.Second)
	require.Equal(t, 40*time.Second, w.since("holder", "a"), "also one that was there before")
}

// What was not asked for in a pass may have changed and come back meanwhile.
func TestWatchForgetsWhatAPassDidNotAskFor(t *testing.T) {
	w := newWatch()
	w.begin(10 * time.Second)
	w.since("holder", "a")
	w.begin(20 * time.Second)
	w.begin(30 * time.Second)
	require.Equal(t, 30*time.Second, w.since("holder", "a"))
}

// A runtime that misses a beat must not cost the parent's history: its second exit is
// what a start at once follows from.
func TestWatchKeepsExitsThatAPassDidNotAskFor(t *testing.T) {
	w := newWatch()
	w.begin(time.Minute)
	w.ended("a", 0, false, false)
	w.begin(2 * time.Minute)
	require.Equal(t, 1, w.ended("a", 1, false, false))
	w.begin(3 * time.Minute) // the runtime does not answer
	w.begin(4 * time.Minute)
	require.Equal(t, 2, w.ended("a", 2, false, false))
	w.begin(4*time.Minute + exitWindow)
	require.Empty(t, w.exits, "nor are they kept for ever")
}

func TestLostWatchMakesDeadlinesLater(t *testing.T) {
	old := newWatch()
	old.begin(10 * time.Second)
	old.since("holder", "a")
	old.ended("activation", 2, true, false)
	lost := newWatch()
	old.begin(time.Minute)
	lost.begin(time.Minute)
	require.Greater(t, lost.since("holder", "a"), old.since("holder", "a"))
	require.LessOrEqual(t, lost.ended("activation", 2, false, false), old.ended("activation", 2, false, false))
}

func TestWatchCountsExits(t *testing.T) {
	w := newWatch()
	w.begin(time.Minute)
	require.Equal(t, 0, w.ended("a", 5, false, false), "those before the first look are of unknown age")
	require.Equal(t, 2, w.ended("b", 2, true, false), "but all of an activation that began in this boot are recent")
	w.begin(2 * time.Minute)
	require.Equal(t, 1, w.ended("a", 6, false, false))
	require.Equal(t, 1, w.ended("a", 6, false, false), "looking twice counts once")
	require.Equal(t, 1, w.ended("a", 0, false, false), "a count that falls back is no exit: the runtime removed old containers")
	require.Equal(t, 2, w.ended("b", 2, true, false))

	w.begin(2*time.Minute + exitWindow - time.Second)
	require.Equal(t, 1, w.ended("a", 6, false, false))
	require.Equal(t, 0, w.ended("b", 2, true, false), "ten minutes later they are forgiven")
	w.begin(2*time.Minute + exitWindow)
	require.Equal(t, 0, w.ended("a", 6, false, false))
}
