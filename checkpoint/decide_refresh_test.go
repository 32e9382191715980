package checkpoint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// changedIn: generation 8 is on disk, of the same pod as 7, and other in these volumes.
func changedIn(volumes ...string) saw {
	return generations(
		withPayloads(store.Generation{Seq: 8, Spec: "spec"}, volumes...),
		withPayloads(store.Generation{Seq: 7, Spec: "spec"}),
	)
}

// withPayloads is a generation of which these volumes are not as they have always been.
func withPayloads(g store.Generation, changed ...string) store.Generation {
	g.Payloads = map[string]string{"certs": "old", "config": "old", "env": "old"}
	for _, volume := range changed {
		g.Payloads[volume] = string(rune('0' + g.Seq))
	}
	return g
}

// reads: the containers of the checkpoint read these volumes once.
func reads(volumes ...string) saw {
	return func(w *World) {
		active := *w.active()
		active.Fixed = volumes
		w.Active = Known(&active)
	}
}

// files: the files of the checkpoint are of that generation.
func files(seq int64) saw {
	return func(w *World) {
		active := *w.active()
		active.Files = seq
		w.Active = Known(&active)
	}
}

func TestRefresh(t *testing.T) {
	serving := func(saws ...saw) World {
		return world(append([]saw{served(), heldByCheckpoint(), ready(forever)}, saws...)...)
	}
	third := func(changed ...string) saw {
		return func(w *World) {
			changedIn("certs")(w)
			record, _ := w.Record.Value()
			record.Generations = append([]store.Generation{withPayloads(store.Generation{Seq: 9, Spec: "spec"}, changed...)}, record.Generations...)
			w.Record = Known(record)
		}
	}
	check(t, []row{
		{"a checkpoint that serves gets what has changed", serving(changedIn("certs", "config")), Serving, "refresh to generation 8"},
		{"once", serving(changedIn("certs"), files(8)), Serving, ""},
		{"nothing that is the same", serving(changedIn(), files(8)), Serving, ""},
		{"what is not saved yet is saved before", serving(changedIn("certs"), changed()), Serving, "snapshot after generation 8"},
		{"a handoff does not wait for it", serving(changedIn("certs"), waits(Parent)), Serving, "end the checkpoint for the parent"},
		{"nor it for a parent that is not due yet", serving(changedIn("certs"), waits(Parent), ready(time.Second)), Serving, "refresh to generation 8"},
		{"it needs neither API server, runtime nor kubelet", serving(changedIn("certs"), apiUnknown(), runtimeUnknown(), kubeletUnknown()), Serving, "refresh to generation 8"},
		{"a checkpoint that ails may be cured by it", serving(changedIn("certs"), unready(forever)), Serving, "refresh to generation 8"},
		{"for which it has to be saved", serving(changed(), unready(forever)), Serving, "snapshot after generation 7"},
		{"without a lock it is the same", serving(withoutLock(), changedIn("certs")), Serving, "refresh to generation 8"},

		{"another pod is none of its", serving(generations(gen(8, "new"), gen(7, "spec"))), Serving, ""},
		{"what is read once is left alone", serving(changedIn("env"), reads("env")), Serving, ""},
		{"with all that came with it: a half of a generation is none", serving(changedIn("certs", "env"), reads("env")), Serving, ""},
		{"where that did not change, the rest follows", serving(changedIn("certs"), reads("env")), Serving, "refresh to generation 8"},
		{"the newest counts", serving(third("config")), Serving, "refresh to generation 9"},
		{"or the newest that can be given to it", serving(third("certs", "env"), reads("env")), Serving, "refresh to generation 8"},
		{"which it has", serving(third("certs", "env"), reads("env"), files(8)), Serving, ""},
		{"one that can't be read is none", serving(third("config"), func(w *World) { w.Unusable = map[int64]string{9: "bad"} }), Serving, "refresh to generation 8"},
		{"nor is there one where nobody can tell what it has", serving(changedIn("certs"), files(0)), Serving, ""},
		{"or can read what that is", serving(changedIn("certs"), unusableGeneration(7)), Serving, ""},
		{"or where it is gone from the disk", serving(generations(gen(8, "spec"))), Serving, ""},
		{"never back", serving(changedIn("certs"), func(w *World) {
			record, _ := w.Record.Value()
			record.Generations = record.Generations[1:]
			w.Record = Known(record)
		}, files(8)), Serving, ""},

		{"one that starts has its time first", world(changedIn("certs"), manifest(10*time.Second), heldBy(Checkpoint, time.Second), unready(time.Second)), Activating, ""},
		{"one that serves behind another one's manifest goes", world(changedIn("certs"), served(), heldByStale(), ready(forever)), Serving, ""},
		{"one that was told to go too", world(changedIn("certs"), handoff(time.Second), heldByStale(), waits(Parent)), HandingOff, "end the stale-checkpoint"},
		{"one that waits gets nothing yet", world(changedIn("certs"), manifest(forever), heldByForeign(), waits(Checkpoint)), Activating, ""},
		{"and for a parent the kubelet does it", world(changedIn("certs"), heldByParent(), ready(forever), knownGood(8)), Protected, ""},
		{"the store must be there", serving(changedIn("certs"), storeUnknown()), Activating, "frozen: store"},
	})
	a := Decide(serving(changedIn("certs")), Defaults().limits()).Action
	require.Equal(t, Refresh{Activation: "active", Generation: 8}, a)
}

// What is handed over and comes back is what it was when it was told to go.
func TestAHandoffThatFailsStartsWithTheRefreshedFiles(t *testing.T) {
	w := world(changedIn("certs"), served(), files(8), heldByCheckpoint(), waits(Parent), ready(forever))
	require.Equal(t, int64(8), Decide(w, Defaults().limits()).Action.(HandOver).Generation)
}

func TestUpcoming(t *testing.T) {
	for _, tt := range []struct {
		promise string
		world   World
		says    string
	}{
		{"the parent serves", world(changedIn("certs"), heldByParent()), ""},
		{"it has the newest", world(served()), ""},
		{"it was refreshed", world(changedIn("certs"), served(), files(8)), ""},
		{"it is about to be", world(changedIn("certs"), served()), "the files of generation 8 follow when the checkpoint serves"},
		{"another pod", world(generations(gen(8, "new"), gen(7, "spec")), served()), "generation 8 counts from the next start: its pod is another one"},
		{"read once", world(changedIn("certs", "env"), served(), reads("config", "env")), "generation 8 counts from the next start: its volume env is another one, which containers read once"},
		{"nobody can tell", world(changedIn("certs"), served(), files(0)), "generation 8 counts from the next start: nobody can tell what the checkpoint has mounted"},
		{"nobody can tell, and it was started with the newest", world(served(), files(0)), ""},
		{"nothing is on disk", world(generations(), served()), ""},
	} {
		assert.Equal(t, tt.says, upcoming(tt.world), tt.promise)
	}
}
