package checkpoint

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// TestNeeds is the table of what each action needs to be Known.
func TestNeeds(t *testing.T) {
	sources := map[string]saw{
		"store": storeUnknown(), "lock": func(w *World) { w.Serves = Unknown[Party]("silent") }, "manifests": manifestsUnknown(),
		"runtime": runtimeUnknown(), "kubelet": kubeletUnknown(), "api": apiUnknown(),
		"readiness": func(w *World) { w.Ready = Unknown[Readiness]("silent") },
	}
	for _, tt := range []struct {
		name   string
		action Action
		locked bool
		needs  string
	}{
		{"start, with a lock", Start{}, true, "lock manifests store"},
		{"start, without", Start{}, false, "manifests runtime store"},
		{"hand over", HandOver{Holder: party(Checkpoint)}, true, "kubelet lock manifests runtime store"},
		{"let go of a manifest behind a parent that holds", HandOver{}, true, "lock manifests runtime store"},
		{"stop a checkpoint for its parent", End{}, true, "lock manifests runtime"},
		{"stop a parent, which may have become ready", StopParent{}, true, "lock readiness runtime"},
		{"snapshot", Snapshot{}, true, "api store"},
		{"refresh, of files alone", Refresh{}, true, "store"},
		{"remember", Remember{}, true, "store"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var needs []string
			for source, silent := range sources {
				w := world(unready(0), silent)
				w.Locked = tt.locked
				if d := permit(Decision{Action: tt.action}, w); d.Action == nil {
					require.Equal(t, []string{source}, d.Frozen)
					needs = append(needs, source)
				}
			}
			slices.Sort(needs)
			require.Equal(t, tt.needs, strings.Join(needs, " "))
		})
	}
}

// TestStuck has what becomes of an action that is repeated.
func TestStuck(t *testing.T) {
	due := []saw{unsynced(), parentDown(time.Hour)}
	with := func(t saw) World { return world(append(slices.Clone(due), t)...) }
	check(t, []row{
		{"the world gets time to show an effect", with(tried("start generation 7", 1, 900*time.Millisecond)), Pending, ""},
		{"then the action is repeated", with(tried("start generation 7", 1, time.Second)), Pending, "start 7"},
		{"after five times it is stuck", with(tried("start generation 7", 5, time.Second)), Stuck, ""},
		{"and still tried, slowly, so that nobody has to come", with(tried("start generation 7", 5, 10*time.Second)), Stuck, "start 7"},
		{"another action is not held back", with(tried("snapshot after generation 7", 9, 0)), Pending, "start 7"},
	})
	d := Decide(with(tried("start generation 7", 5, time.Second)), Defaults().limits())
	require.Contains(t, d.Why, "EROFS", "the reason names what failed")
}

// TestOldHandoffs: the store may hold a handoff of whichever kind from before a
// reboot; the boot begins without it.
func TestOldHandoffs(t *testing.T) {
	for name, old := range map[string]saw{"open": handoff(forever), "taken": taken(forever), "rolling back": rollingBack()} {
		t.Run(name, func(t *testing.T) {
			d := Decide(world(old, beforeReboot(), unsynced(), parentDown(0), free(0)), Defaults().limits())
			require.Equal(t, "start 7", follows(d), d.Why)
			require.Equal(t, store.State{KnownGood: 7}, remembered(t, d))
		})
	}
}
