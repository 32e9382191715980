package checkpoint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

func TestServing(t *testing.T) {
	check(t, []row{
		{"what changed meanwhile is saved: it may serve for days", world(changed(), served(), heldByCheckpoint(), ready(forever)), Serving, "snapshot after generation 7"},
		{"nor does that hold up a handoff, since it may fail", world(changed(), served(), heldByCheckpoint(), waits(Parent), ready(10*time.Second)), Serving, "end the checkpoint for the parent"},
		{"nobody waits: it serves on", world(served(), heldByCheckpoint(), ready(forever)), Serving, ""},
		{"a settled checkpoint gives way to the parent that is first in line", world(served(), heldByCheckpoint(), waits(Parent), ready(10*time.Second)), Serving, "end the checkpoint for the parent"},
		{"not before it settled", world(served(), heldByCheckpoint(), waits(Parent), ready(9*time.Second)), Serving, ""},
		{"settling counts from when it took the lock", world(served(), heldBy(Checkpoint, 9*time.Second), waits(Parent), ready(forever)), Serving, ""},
		{"not to a parent that is second in line", world(served(), heldByCheckpoint(), waits(Foreign, Parent), ready(forever)), Serving, ""},
		{"not to one that we can't place", world(served(), heldByCheckpoint(), waits(Foreign), ready(forever)), Serving, ""},
		{"not while the kubelet is unsynced: it could not stop the checkpoint", world(unsynced(), served(), heldByCheckpoint(), waits(Parent), ready(forever)), Serving, ""},
		{"nor while nobody knows whether it is", world(kubeletUnknown(), served(), heldByCheckpoint(), waits(Parent), ready(forever)), Serving, "frozen: kubelet"},
		{"nor without the runtime", world(runtimeUnknown(), served(), heldByCheckpoint(), waits(Parent), ready(forever)), Serving, "frozen: runtime"},
		{"the API server need not answer for it", world(apiUnknown(), served(), heldByCheckpoint(), waits(Parent), ready(forever)), Serving, "end the checkpoint for the parent"},

		{"a parent that failed waits for its next try", world(served(), heldByCheckpoint(), waits(Parent), ready(forever), failedParent("parent-pod", time.Second)), Serving, ""},
		{"and has it when the time is over", world(served(), heldByCheckpoint(), waits(Parent), ready(forever), failedParent("parent-pod", 0)), Serving, "end the checkpoint for the parent"},
		{"another parent is tried at once", world(served(), heldByCheckpoint(), waits(Parent), ready(forever), failedParent("its predecessor", time.Hour)), Serving, "end the checkpoint for the parent"},

		{"one that served may be unready for a while", world(served(), heldByCheckpoint(), unready(59*time.Second)), Serving, ""},
		{"unready for the start timeout, the parent gets its turn", world(served(), heldByCheckpoint(), waits(Parent), unready(time.Minute)), Serving, "end the checkpoint for the parent"},
		{"so it does where the checkpoint never served", world(manifest(time.Hour), heldByCheckpoint(), waits(Parent), unready(time.Minute)), Activating, "end the checkpoint for the parent"},
		{"the next candidate has it where the kubelet is unsynced", world(unsynced(), manifest(time.Hour), heldByCheckpoint(), waits(Parent), unready(time.Minute)), Failing, "start 7"},
		{"or where nobody knows: it may never be, without us", world(kubeletUnknown(), manifest(time.Hour), heldByCheckpoint(), waits(Parent), unready(time.Minute)), Failing, "start 7"},
		{"nobody waits for one that served and is unready: it stays", world(served(), heldByCheckpoint(), unready(forever)), Serving, ""},

		{"a process that came after the one that served has to show itself", world(served(), heldByAnother(), unready(59*time.Second)), Activating, ""},
		{"and fails like any other", world(served(), heldByAnother(), unready(time.Minute)), Failing, "start 7"},
		{"its exit makes it Activating again", world(served(), free(time.Second)), Activating, ""},
		{"a manifest that somebody took away is written anew", world(heldByStale(), ready(forever)), Activating, "start 7"},
		{"also where a parent waits: nobody told the checkpoint to go", world(heldByStale(), waits(Parent), ready(forever)), Activating, "start 7"},
		{"also without a lock", world(withoutLock(), heldByStale(), ready(forever)), Activating, "start 7"},
		{"unless its parent runs beside it already, without a lock", world(withoutLock(), heldByStale(), waits(Parent), ready(forever)), HandingOff, "end the stale-checkpoint"},
		{"a directory that can't be read is not an empty one", world(manifestsUnknown(), heldByStale(), ready(forever)), Activating, "frozen: manifests"},
		{"a checkpoint that serves again ends a rollback", world(rollingBack(), served(), heldByCheckpoint()), RollingBack, "remember: the handoff was taken back"},
	})
}

// failedParent: this parent's handoff failed, and its next try comes in so long.
func failedParent(uid string, in time.Duration) saw {
	return remembers(func(s *store.State) {
		s.FailedParent, s.RetryAt, s.RetryBoot, s.Rollbacks = uid, now+in, boot, 1
	})
}

func TestHandOverRemembersWhatItBegan(t *testing.T) {
	d := Decide(world(served(), heldByCheckpoint(), waits(Parent), ready(forever)), Defaults().limits())
	require.Equal(t, &store.Handoff{BootID: boot, At: now, Activation: "active", ParentUID: "parent-pod"}, remembered(t, d).Handoff)
	action := d.Action.(HandOver)
	require.Equal(t, "ours", action.Holder.ID)
	require.Equal(t, "parent-container", action.Parent.ID)
	require.Equal(t, int64(7), action.Generation, "to come back if the parent is gone")
}

// A parent that dies before it was seen to hold would else take the checkpoint
// down each time that the kubelet restarts it.
func TestAParentThatNeverTookTheLockWaitsForItsNextTry(t *testing.T) {
	state := remembered(t, Decide(world(handoff(2*time.Second), parentLive(forever), free(time.Second)), Defaults().limits()))
	require.Nil(t, state.Handoff)
	require.Equal(t, "parent-pod", state.FailedParent)
	require.Equal(t, now+time.Minute, state.RetryAt)
}

// So does one that was gone before the checkpoint was, and before it was told to go.
func TestAParentThatLeftTheLineWaitsForItsNextTry(t *testing.T) {
	state := remembered(t, Decide(world(handoff(time.Second), heldByStale()), Defaults().limits()))
	want := store.State{KnownGood: 7, Rollbacks: 1, FailedParent: "parent-pod", RetryAt: now + time.Minute, RetryBoot: boot}
	require.Equal(t, want, state)
	d := Decide(world(served(), heldByCheckpoint(), waits(Parent), ready(forever)), Defaults().limits())
	require.Equal(t, want, d.Action.(HandOver).Gone)
	require.Equal(t, store.State{KnownGood: 7}, remembered(t, Decide(world(away(), handoff(time.Second), heldByStale()), Defaults().limits())), "unless a dependency explains it")
}

func TestHandOverAfterARebootForgetsTheBackoff(t *testing.T) {
	w := world(served(), heldByCheckpoint(), waits(Parent), ready(forever), failedParent("parent-pod", time.Hour),
		remembers(func(s *store.State) { s.RetryBoot = "an earlier boot" }))
	d := Decide(w, Defaults().limits())
	require.Equal(t, "end the checkpoint for the parent", follows(d), d.Why)
}

func TestServedIsRememberedAndEndsTheFailures(t *testing.T) {
	d := Decide(world(manifest(time.Minute), heldByCheckpoint(), ready(0), failures(4)), Defaults().limits())
	state := remembered(t, d)
	require.Zero(t, state.Failures)
	require.Equal(t, &store.Activation{ID: "active", Generation: 7, BootID: boot, At: now - time.Minute, ServedBy: "ours"}, state.Activation)
	require.Equal(t, int64(7), state.KnownGood, "the rest stays")
}

// TestHandingOff has the part of the table where the parent does not hold yet.
func TestHandingOff(t *testing.T) {
	check(t, []row{
		{"the holder that was told to go is ended for the parent", world(handoff(time.Second), heldByStale(), waits(Parent)), HandingOff, "end the stale-checkpoint"},
		{"if the parent is not first in line any more, a new activation", world(handoff(time.Second), heldByStale(), waits(Foreign, Parent)), HandingOff, "start 7"},
		{"or if nobody waits", world(handoff(time.Second), heldByStale()), HandingOff, "start 7"},
		{"a holder whose manifest may be there is not ended", world(manifestsUnknown(), handoff(time.Second), heldByStale(), waits(Parent)), HandingOff, "frozen: manifests"},
		{"the lock may be free for a second", world(handoff(2*time.Second), parentLive(forever), free(900*time.Millisecond)), HandingOff, ""},
		{"then there is no heir", world(handoff(2*time.Second), parentLive(forever), free(time.Second)), HandingOff, "start 7"},
		{"without a lock the parent may be in the kubelet's backoff", world(withoutLock(), handoff(time.Minute), parentDown(29*time.Second), free(29*time.Second)), HandingOff, ""},
		{"which ends", world(withoutLock(), handoff(time.Minute), parentDown(30*time.Second), free(30*time.Second)), HandingOff, "start 7"},
		{"each try waits twice as long as the last", world(withoutLock(), handoff(time.Hour), rollbacks(2), parentDown(119*time.Second), free(119*time.Second)), HandingOff, ""},
		{"but none for ever", world(withoutLock(), handoff(time.Hour), rollbacks(60), parentDown(5*time.Minute), free(5*time.Minute)), HandingOff, "start 7"},
		{"what began before the reboot is over", world(handoff(forever), beforeReboot(), unsynced(), parentDown(0), free(0)), Pending, "start 7"},
		{"and the parent gets the time that a synced kubelet needs", world(taken(forever), beforeReboot(), parentDown(0), free(0)), Pending, ""},
		{"somebody unknown may hold for the handoff's timeout", world(handoff(59*time.Second), heldByForeign()), HandingOff, ""},
		{"then we stand in line again", world(handoff(time.Minute), heldByForeign()), HandingOff, "start 7"},
	})
}

// rolling is a rolling update: generation 8 is that of the new parent, 7 is
// known-good and of the old one.
func rolling() saw {
	return generations(
		store.Generation{Seq: 8, Spec: "new", Source: store.Source{PodUID: "parent-pod"}},
		store.Generation{Seq: 7, Spec: "spec", Source: store.Source{PodUID: "its predecessor"}},
	)
}

// TestRollingUpdate: no copy of the old version starts beside the new one, unless the
// new one has failed.
func TestRollingUpdate(t *testing.T) {
	check(t, []row{
		{"the old parent is deleted: its copy starts at once", world(parentDeleted(), free(0)), Pending, "start 7"},
		{"it serves, and the new parent is saved while it waits", world(changed(), served(), heldByCheckpoint(), waits(Parent), ready(9*time.Second)), Serving, "snapshot after generation 7"},
		{"the new parent gets its turn", world(rolling(), served(), heldByCheckpoint(), waits(Parent), ready(10*time.Second)), Serving, "end the checkpoint for the parent"},
		{"a copy that ended meanwhile leaves the lock to it, and is removed", world(rolling(), served(), heldByParent(), unready(0)), HandingOff, "remove the manifest"},
		{"a new one that fails is rolled back to the old", world(rolling(), taken(time.Second), parentDown(0), free(0)), RollingBack, "start 7"},
		{"also while it holds on", world(rolling(), rollingBack(), failedParent("parent-pod", time.Minute), heldByParent(), unready(forever)), RollingBack, "start 7"},
		{"one that runs and does not take the lock has failed", world(rolling(), parentLive(30*time.Second), free(30*time.Second)), Pending, "start 7"},

		{"a manifest that somebody took away comes back as the new one's", world(rolling(), heldByStale(), waits(Parent), ready(forever)), Activating, "start 8"},
		{"so does a candidate that can't give way", world(rolling(), unsynced(), manifest(time.Hour), heldByCheckpoint(), waits(Parent), unready(time.Minute)), Failing, "start 8"},
		{"or that stands in line again", world(rolling(), handoff(time.Minute), heldByForeign(), waits(Parent)), HandingOff, "start 8"},
		{"what the API server calls saved is the newest", world(generations(gen(8, "new"), gen(7, "spec")), heldByStale(), waits(Parent), ready(forever)), Activating, "start 8"},
		{"to a parent that failed the old one is no rival", world(rolling(), heldByStale(), waits(Parent), ready(forever), failedParent("parent-pod", time.Minute)), Activating, "start 7"},
		{"nor to one whose spec it has", world(rolling(), knownGood(7), sameSpec(), heldByStale(), waits(Parent), ready(forever)), Activating, "start 8"},
	})
}

// sameSpec: the generations differ in payloads alone.
func sameSpec() saw {
	return func(w *World) {
		record, _ := w.Record.Value()
		record.Generations[0].Spec = "spec"
		w.Record = Known(record)
	}
}
