package sim

import (
	"flag"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	seed  = flag.Int64("sim.seed", -1, "play this seed alone, and show all that happens")
	seeds = flag.Int64("sim.seeds", 200, "play so many seeds")
)

func TestStories(t *testing.T) { play(t, *seeds, false) }

// A daemon that remembers nothing from pass to pass decides later, never bolder.
func TestStoriesOfAForgetfulDaemon(t *testing.T) { play(t, *seeds/4, true) }

func play(t *testing.T, count int64, forgetful bool) {
	if *seed >= 0 {
		require.NoError(t, Play(*seed, forgetful, os.Stderr))
		return
	}
	for seed := range count {
		require.NoError(t, Play(seed, forgetful, io.Discard))
	}
}
