package sim

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	seed  = flag.Int64("sim.seed", -1, "play this seed alone, and show all that happens")
	seeds = flag.Int64("sim.seeds", 40, "play so many seeds")
)

func TestStories(t *testing.T) { play(t, *seeds, false) }

// A daemon that remembers nothing from pass to pass decides later, never bolder.
func TestStoriesOfAForgetfulDaemon(t *testing.T) { play(t, *seeds/8, true) }

func play(t *testing.T, count int64, forgetful bool) {
	name := t.Name()
	if *seed >= 0 {
		if err := Play(*seed, forgetful, os.Stderr); err != nil {
			t.Fatal(err)
		}
		return
	}
	for seed := range count {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			if err := Play(seed, forgetful, io.Discard); err != nil {
				t.Fatalf("%v\nagain: go test ./test/sim -run '%s$' -sim.seed=%d", err, name, seed)
			}
		})
	}
}

// What a seed comes to depends on nothing else, or a failure could not be seen again.
func TestASeedIsTheWholeStory(t *testing.T) {
	var first, second bytes.Buffer
	_, _ = Play(1, false, &first), Play(1, false, &second)
	require.Greater(t, first.Len(), 10_000)
	require.Equal(t, first.String(), second.String())
}
