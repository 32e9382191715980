package checkpoint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

func TestUnprotected(t *testing.T) {
	none := generations()
	check(t, []row{
		{"a complete parent is saved", world(none, changed()), Unprotected, "snapshot after generation 0"},
		{"no parent, nothing to save", world(none), Unprotected, ""},
		{"no API server, nothing to save", world(none, apiUnknown()), Unprotected, "frozen: api"},
		{"without a generation nothing starts, whoever is gone", world(none, unsynced(), parentDeleted()), Unprotected, ""},
		{"a parent that can't be static needs a person", world(none, refused()), Unprotectable, ""},
		{"once saved, a parent that can't be static is protected by what there is", world(refused(), heldByParent(), ready(time.Hour)), Protected, ""},
	})
}

func TestPending(t *testing.T) {
	check(t, []row{
		{"an unsynced kubelet may never restart the parent: start at once", world(unsynced(), parentDown(0), free(0)), Pending, "start 7"},
		{"neither may a silent one", world(kubeletUnknown(), parentDown(0), free(0)), Pending, "start 7"},
		{"a synced one gets three seconds", world(parentDown(2900 * time.Millisecond)), Pending, ""},
		{"and no more", world(parentDown(3 * time.Second)), Pending, "start 7"},
		{"the second exit within ten minutes is one too many", world(parentTwice()), Pending, "start 7"},
		{"a parent that was deleted is not waited for", world(parentDeleted()), Pending, "start 7"},
		{"one that is not made yet is", world(parentNew(29 * time.Second)), Pending, ""},
		{"but not for ever", world(parentNew(30 * time.Second)), Pending, "start 7"},
		{"nor by a kubelet that may never make it", world(parentNew(0), unsynced(), free(0)), Pending, "start 7"},
		{"a silent runtime delays no start: a waiter is harmless", world(runtimeUnknown(), free(0)), Pending, "start 7"},
		{"nor does everything else that is silent", world(runtimeUnknown(), kubeletUnknown(), apiUnknown(), free(0)), Pending, "start 7"},
		{"a parent that runs is given time to take the lock", world(parentLive(29*time.Second), unsynced()), Pending, ""},
		{"counted from when the lock was free", world(parentLive(forever), free(29*time.Second)), Pending, ""},
		{"but not for ever", world(parentLive(30*time.Second), unsynced()), Pending, "start 7"},
		{"the lock table must be read", world(unsynced(), lockUnknown()), Pending, "frozen: lock"},
		{"so must the static pod directory", world(unsynced(), manifestsUnknown()), Pending, "frozen: manifests"},
		{"and the store", world(unsynced(), storeUnknown()), Pending, "frozen: store"},
		{"a generation whose image is absent does not start", world(unsynced(), unusableGeneration(7)), Pending, ""},

		{"without a lock two would run: the parent is gone for long", world(withoutLock(), unsynced(), parentDown(29*time.Second)), Pending, ""},
		{"and then it starts", world(withoutLock(), parentDown(30*time.Second)), Pending, "start 7"},
		{"without a lock a parent that is live is never doubled", world(withoutLock(), parentLive(forever)), Pending, ""},
		{"without a lock the runtime must answer", world(withoutLock(), runtimeUnknown()), Pending, "frozen: runtime"},
		{"also where it answered a part", world(withoutLock(), lockUnknown()), Pending, "frozen: runtime"},
	})
}

func TestActivating(t *testing.T) {
	check(t, []row{
		{"a manifest gets its start timeout", world(manifest(59 * time.Second)), Activating, ""},
		{"two exits are borne", world(manifest(10*time.Second), exited(2)), Activating, ""},
		{"three are not", world(manifest(10*time.Second), exited(3)), Failing, "start 7"},
		{"nor is one that is not in the lock table by the timeout", world(manifest(time.Minute)), Failing, "start 7"},
		{"a silent runtime hides the exits, not the deadline", world(runtimeUnknown(), manifest(time.Minute)), Failing, "start 7"},
		{"one that served and exited is restarted by the kubelet, which has its time", world(served(), free(59*time.Second)), Activating, ""},
		{"and no more", world(served(), free(time.Minute)), Failing, "start 7"},
		{"the holder is asked whether it is ready", world(manifest(30*time.Second), heldBy(Checkpoint, 20*time.Second), unready(20*time.Second)), Activating, ""},
		{"and is not until it was asked", world(manifest(30*time.Second), heldBy(Checkpoint, time.Second)), Activating, "frozen: readiness"},
		{"its timeout counts from when it took the lock", world(manifest(forever), heldBy(Checkpoint, 59*time.Second), unready(59*time.Second)), Activating, ""},
		{"a candidate that holds and is not ready by then is given up", world(manifest(forever), heldBy(Checkpoint, time.Minute), unready(time.Minute)), Failing, "start 7"},
		{"once ready it is remembered as one that served", world(manifest(30*time.Second), heldByCheckpoint(), ready(0)), Serving, "remember: this candidate serves"},

		{"waiting is never a failure", world(manifest(forever), heldByForeign(), waits(Checkpoint)), Activating, ""},
		{"not to be in the line is one", world(manifest(forever), heldByForeign(), waits(Parent)), Failing, "start 7"},
		{"behind a parent that serves it is removed", world(manifest(10*time.Second), heldByParent(), waits(Checkpoint), ready(time.Hour)), HandingOff, "remove the manifest"},
		{"a stale one may hold while its successor comes", world(manifest(10*time.Second), heldByStale(), unready(10*time.Second)), Activating, ""},
		{"but not unready for ever", world(manifest(10*time.Second), heldByStale(), unready(time.Minute)), Failing, "end the stale-checkpoint"},
		{"the lock table must be read", world(manifest(forever), lockUnknown()), Activating, "frozen: lock"},
	})
}

func TestFailingTakesTheNextCandidate(t *testing.T) {
	d := Decide(world(manifest(time.Minute), generations(gen(9, "new"), gen(7, "spec"))), Defaults().limits())
	require.Equal(t, "start 9", follows(d), d.Why)
	require.Equal(t, 1, remembered(t, d).Failures)
}

func TestFailingWaitsLongerEachRound(t *testing.T) {
	limits := Defaults().limits()
	for _, tt := range []struct {
		failures int
		backoff  time.Duration
	}{{1, 10 * time.Second}, {2, 20 * time.Second}, {4, 80 * time.Second}, {60, 5 * time.Minute}} {
		early := Decide(world(manifest(tt.backoff-time.Millisecond), exited(3), failures(tt.failures)), limits)
		assert.Equal(t, Failing, early.State, early.Why)
		assert.Nil(t, early.Action, early.Why)
		due := Decide(world(manifest(tt.backoff), exited(3), failures(tt.failures)), limits)
		assert.Equal(t, "start 7", follows(due), due.Why)
	}
}

func gen(seq int64, spec string) store.Generation { return store.Generation{Seq: seq, Spec: spec} }

func TestCandidates(t *testing.T) {
	for _, tt := range []struct {
		promise string
		world   World
		order   []int64
	}{
		{"nothing is proved: the newest", world(knownGood(0), generations(gen(3, "c"), gen(2, "b"))), []int64{3}},
		{"first fresh payloads under a spec that is known good, then known-good, then the newest",
			world(knownGood(2), generations(gen(5, "c"), gen(4, "b"), gen(3, "b"), gen(2, "b"))), []int64{4, 2, 5}},
		{"the newest is known good", world(knownGood(3), generations(gen(3, "b"), gen(2, "b"))), []int64{3}},
		{"one whose image is absent is skipped",
			world(knownGood(2), absent(4), generations(gen(5, "c"), gen(4, "b"), gen(2, "b"))), []int64{2, 5}},
		{"unless all are: a registry may answer",
			world(knownGood(2), absent(5, 4, 2), generations(gen(5, "c"), gen(4, "b"), gen(2, "b"))), []int64{4, 2, 5}},
		{"one that can't be read is none",
			world(knownGood(2), unusableGeneration(4), absent(2), generations(gen(5, "c"), gen(4, "b"), gen(2, "b"))), []int64{5}},
		{"the known-good one is lost: the newest", world(knownGood(1), generations(gen(3, "c"))), []int64{3}},
		{"nothing can be started", world(unusableGeneration(7)), nil},
	} {
		t.Run(tt.promise, func(t *testing.T) {
			var order []int64
			for _, g := range candidates(tt.world) {
				order = append(order, g.Seq)
			}
			require.Equal(t, tt.order, order)
			// Failures choose round and round.
			for n := 0; n < 2*len(order); n++ {
				failures(n)(&tt.world)
				d := start(tt.world, Pending, nil, "")
				require.Equal(t, order[n%len(order)], d.Action.(Start).Generation)
			}
		})
	}
}
