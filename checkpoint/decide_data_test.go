package checkpoint

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// dataIs: so it is with the data directory of generations 7 and 8.
func dataIs(is Observed[string]) saw {
	return func(w *World) { w.Data = map[int64]Observed[string]{7: is, 8: is} }
}

// dataOfOne: so it is with that of one generation.
func dataOfOne(seq int64, is Observed[string]) saw {
	return func(w *World) { w.Data = map[int64]Observed[string]{seq: is} }
}

// TestStartNeedsItsData: a second cluster is worse than none, and a look comes soon.
func TestStartNeedsItsData(t *testing.T) {
	gone, unseen := Known("/var/lib/etcd: it is empty"), Unknown[string]("not looked at")
	check(t, []row{
		{"the directory is as it was", world(dataIs(Known("")), unsynced(), parentDown(0), free(0)), Pending, "start 7"},
		{"it is not: nothing starts", world(dataIs(gone), unsynced(), parentDown(0), free(forever)), Pending, ""},
		{"nobody has looked yet: the start waits", world(dataIs(unseen), unsynced(), parentDown(0), free(forever)), Pending, "frozen: data"},
		{"one that is known good has its own", world(dataOfOne(9, gone), knownGood(2), generations(gen(9, "c"), gen(2, "b")), unsynced(), parentDown(0), free(0)), Pending, "start 2"},
		{"and one that needs none starts", world(dataOfOne(9, unseen), knownGood(2), generations(gen(9, "c"), gen(2, "b")), unsynced(), parentDown(0), free(0)), Pending, "start 2"},
		{"a checkpoint is not brought back on another directory", world(dataIs(gone), handoff(forever), free(forever)), HandingOff, ""},
		{"nor does the next candidate start on it", world(dataIs(gone), manifest(forever), free(forever)), Failing, ""},
	})
}

func TestStartSaysWhatIsWithItsData(t *testing.T) {
	d := Decide(world(dataIs(Known("/var/lib/etcd: it is empty")), unsynced(), parentDown(0), free(0)), Defaults().limits())
	require.Contains(t, d.Why, `candidates=none generation-7="DataMissing: /var/lib/etcd: it is empty"`)
	require.Empty(t, d.Frozen)
	d = Decide(world(dataIs(Unknown[string]("not looked at")), unsynced(), parentDown(0), free(0)), Defaults().limits())
	require.Contains(t, d.Why, `generation=7 data=unknown why="not looked at"`)
	require.Equal(t, []string{"data"}, d.Frozen)
}
