package checkpoint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

func TestProtected(t *testing.T) {
	check(t, []row{
		{"the parent serves and all is saved", world(heldByParent(), ready(forever)), Protected, ""},
		{"a parent that changed is saved", world(heldByParent(), changed()), Protected, "snapshot after generation 7"},
		{"a runtime that is silent moves nothing", world(heldByParent(), ready(forever), runtimeUnknown()), Protected, ""},
		{"nor does an API server", world(apiUnknown(), heldByParent(), ready(forever)), Protected, ""},
		{"nor a kubelet", world(kubeletUnknown(), heldByParent(), ready(forever)), Protected, ""},
		{"a runtime that denies a parent that holds moves nothing", world(heldByParent(), parentDeleted(), ready(forever)), Protected, ""},
		{"a parent that is not ready is reported, never killed", world(heldByParent(), waits(Checkpoint), unready(forever)), Protected, ""},

		{"ready for a minute, it proves its generation", world(knownGood(0), heldByParent(), ready(time.Minute)), Protected, "remember: known-good"},
		{"not earlier", world(knownGood(0), heldByParent(), ready(59*time.Second)), Protected, ""},
		{"not one that the API server does not know to be saved", world(knownGood(0), apiUnknown(), heldByParent(), ready(forever)), Protected, ""},
		{"not a payload that came after its container's start", world(heldByParent(), ready(forever), newPayload("parent-container")), Protected, ""},
		{"but that of a container which started with it", world(heldByParent(), ready(forever), newPayload("its predecessor")), Protected, "remember: known-good"},

		{"nor a volume that it did not start with", world(heldByParent(), ready(forever), newVolume("parent-container")), Protected, ""},
		{"where only the spec is new, the container that has it proves it", world(heldByParent(), ready(forever), newSpec("parent-container")), Protected, "remember: known-good"},
		{"but no payload that came before it and after the container's start", world(heldByParent(), ready(forever), newPayloadThenSpec("parent-container")), Protected, ""},
		{"nor one of which nobody saw the container", world(heldByParent(), ready(forever), newPayload(unseenContainer)), Protected, ""},
		{"whoever can't be placed keeps us off as a parent does", world(heldByForeign(), parentDeleted(), unsynced()), Protected, ""},
		{"and a changed parent is saved", world(heldByForeign(), changed()), Protected, "snapshot after generation 7"},
		{"a waiter of ours without a manifest is ended", world(heldByParent(), waits(Stale)), Protected, "end the stale-checkpoint"},
		{"once the kubelet has had its time to do so", world(heldByParent(), ready(forever), staleWaitsFor(9*time.Second)), Protected, ""},
		{"unless the manifest can't be seen", world(manifestsUnknown(), heldByParent(), waits(Stale)), Protected, "frozen: manifests"},
		{"a waiter that nobody knows is left alone", world(heldByParent(), waits(Foreign), ready(forever)), Protected, ""},
	})
}

// A parent that is being deleted has closed its port long before its lock is free.
func TestAParentThatEndsHasACheckpointBehindIt(t *testing.T) {
	check(t, []row{
		{"it starts at once", world(heldByParent(), ready(forever), beingDeleted()), Protected, "start 7"},
		{"before a snapshot of its successor", world(heldByParent(), changed(), beingDeleted()), Protected, "start 7"},
		{"also where the API server was that parent", world(heldByParent(), apiUnknown(), beingDeleted()), Protected, "start 7"},
		{"and the runtime and the kubelet say nothing", world(heldByParent(), runtimeUnknown(), kubeletUnknown(), beingDeleted()), Protected, "start 7"},
		{"not twice", world(heldByParent(), manifest(forever), beingDeleted()), Protected, ""},
		{"it waits for its turn", world(heldByParent(), manifest(forever), waits(Checkpoint), beingDeleted()), Protected, ""},
		{"behind a parent that stays there is no manifest", world(heldByParent(), manifest(forever), waits(Checkpoint)), HandingOff, "remove the manifest"},
		{"without a lock both would run", world(withoutLock(), heldByParent(), ready(forever), beingDeleted()), Protected, ""},
		{"what it starts after comes first", world(heldByParent(), ready(forever), beingDeleted(), away()), Protected, ""},
		{"nothing starts of which there is nothing to be started", world(heldByParent(), ready(forever), beingDeleted(), unusable7()), Protected, ""},
		{"a handoff to it is taken back as any", world(heldByParent(), taken(forever), unready(forever), beingDeleted()), RollingBack, "remember: the parent failed"},
	})
}

func beingDeleted() saw { return func(w *World) { w.Ending = true } }

func unusable7() saw { return func(w *World) { w.Unusable = map[int64]string{7: "no image"} } }

// newPayload: a generation that differs from known-good in a payload was taken
// while that container ran.
func newPayload(container string) saw {
	return generations(
		store.Generation{Seq: 8, Spec: "spec", Payloads: map[string]string{"certs": "new"}, Source: store.Source{ContainerID: container}},
		store.Generation{Seq: 7, Spec: "spec", Payloads: map[string]string{"certs": "old"}},
	)
}

func newVolume(container string) saw {
	return generations(
		store.Generation{Seq: 8, Spec: "spec", Payloads: map[string]string{"certs": "old", "more": "new"}, Source: store.Source{ContainerID: container}},
		store.Generation{Seq: 7, Spec: "spec", Payloads: map[string]string{"certs": "old"}},
	)
}

func newSpec(container string) saw {
	return generations(
		store.Generation{Seq: 8, Spec: "new", Payloads: map[string]string{"certs": "old"}, Source: store.Source{ContainerID: container}},
		store.Generation{Seq: 7, Spec: "spec", Payloads: map[string]string{"certs": "old"}},
	)
}

func newPayloadThenSpec(container string) saw {
	return generations(
		store.Generation{Seq: 9, Spec: "new", Payloads: map[string]string{"certs": "new"}, Source: store.Source{ContainerID: container}},
		store.Generation{Seq: 8, Spec: "spec", Payloads: map[string]string{"certs": "new"}, Source: store.Source{ContainerID: container}},
		store.Generation{Seq: 7, Spec: "spec", Payloads: map[string]string{"certs": "old"}},
	)
}

func staleWaitsFor(long time.Duration) saw {
	return func(w *World) {
		p := party(Stale)
		p.Since = now - long
		w.Queue = Known([]Party{p})
	}
}

func TestProtectedSaysThatTheParentIsNotReady(t *testing.T) {
	limits := Defaults().limits()
	require.Contains(t, Decide(world(heldByParent(), unready(time.Hour)), limits).Why, "ready=no since=1h0m0s why=\"503\"")
	require.NotContains(t, Decide(world(heldByParent(), ready(time.Hour)), limits).Why, "ready=no")
}

func TestKnownGoodNamesItsEvidence(t *testing.T) {
	d := Decide(world(knownGood(0), heldByParent(), ready(time.Minute)), Defaults().limits())
	state := remembered(t, d)
	require.Equal(t, int64(7), state.KnownGood)
	require.Equal(t, "parent-container", state.KnownGoodContainer)
}

// TestHandingOffToParent has the part of the table where the parent holds.
func TestHandingOffToParent(t *testing.T) {
	check(t, []row{
		{"a parent that holds beside a manifest of ours: only its removal is left", world(served(), heldByParent(), ready(forever)), HandingOff, "remove the manifest"},
		{"also if it is not ready: to wait behind it is no rollback", world(served(), heldByParent(), waits(Checkpoint), unready(forever)), HandingOff, "remove the manifest"},
		{"who took the lock is remembered first", world(handoff(time.Second), heldByParent(), ready(0)), HandingOff, "remember: the parent took over"},
		{"ready, it is verified", world(taken(10*time.Second), heldByParent(), ready(0)), HandingOff, "remember: the handoff is verified"},
		{"a process that merely holds the lock is not", world(taken(59*time.Second), heldByParent(), unready(59*time.Second)), HandingOff, ""},
		{"and is given up at the handoff's timeout", world(taken(time.Minute), heldByParent(), unready(time.Minute)), RollingBack, "remember: the parent failed"},
		{"an unanswered probe proves neither", world(taken(forever), heldByParent()), HandingOff, "frozen: readiness"},
		{"a parent that exited rolls back, and the start is not a pass later", world(taken(time.Second), parentDown(0), free(0)), RollingBack, "start 7"},
		{"one that exited unseen holds with another container", world(taken(time.Second), heldByAnotherContainer(), unready(0)), RollingBack, "remember: the parent exited"},
		{"after a reboot another container is no exit", world(taken(forever), beforeReboot(), heldByAnotherContainer(), unready(0)), HandingOff, "remember: the parent took over"},
	})
}

func heldByAnotherContainer() saw {
	return func(w *World) {
		p := party(Parent)
		p.ID = "parent-restarted"
		w.Serves = Known(p)
	}
}

func TestRollingBack(t *testing.T) {
	check(t, []row{
		{"first a checkpoint is written", world(rollingBack(), heldByParent(), unready(forever)), RollingBack, "start 7"},
		{"it gets its start timeout", world(rollingBack(), manifest(59*time.Second), heldByParent(), unready(forever)), RollingBack, ""},
		{"not in line by then: the next candidate, and the parent is left alone", world(rollingBack(), manifest(time.Minute), heldByParent(), unready(forever)), RollingBack, "start 7"},
		{"so it is after three exits", world(rollingBack(), manifest(time.Second), exited(3), heldByParent(), unready(forever)), RollingBack, "start 7"},
		{"only once it waits the parent is stopped", world(rollingBack(), manifest(time.Second), heldByParent(), waits(Checkpoint), unready(forever)), RollingBack, "stop the parent"},
		{"a stale waiter is not the one", world(rollingBack(), manifest(time.Second), heldByParent(), waits(Stale), unready(forever)), RollingBack, ""},
		{"nobody is stopped while the runtime is silent", world(rollingBack(), manifest(time.Second), heldByParent(), waits(Checkpoint), unready(forever), runtimeUnknown()), RollingBack, "frozen: runtime"},
		{"nor on a lock table that can't be read", world(lockUnknown(), rollingBack(), manifest(time.Second)), Activating, "frozen: lock"},
		{"a parent that becomes ready after all may stay", world(rollingBack(), manifest(time.Second), heldByParent(), waits(Checkpoint), ready(0)), HandingOff, "remember: the parent became ready after all"},
		{"a parent of this boot does not pay for one of the last", world(rollingBack(), beforeReboot(), heldByParent(), unready(forever)), HandingOff, "remember: the parent took over"},
		{"a parent that is gone leaves the lock to the checkpoint", world(rollingBack(), free(0), parentDown(0)), RollingBack, "start 7"},
	})
}

func TestFailedParentIsRememberedWithItsBackoff(t *testing.T) {
	for _, tt := range []struct {
		rollbacks int
		backoff   time.Duration
	}{{0, time.Minute}, {1, 2 * time.Minute}, {4, 16 * time.Minute}, {5, 30 * time.Minute}, {60, 30 * time.Minute}} {
		for _, w := range []World{
			world(taken(time.Minute), heldByParent(), unready(time.Minute)),
			world(taken(time.Second), parentDown(0), free(0)),
		} {
			remembers(func(s *store.State) { s.Rollbacks = tt.rollbacks })(&w)
			state := remembered(t, Decide(w, Defaults().limits()))
			require.True(t, state.Handoff.RollingBack)
			require.Equal(t, "parent-pod", state.FailedParent)
			require.Equal(t, now+tt.backoff, state.RetryAt)
			require.Equal(t, boot, state.RetryBoot)
			require.Equal(t, tt.rollbacks+1, state.Rollbacks)
		}
	}
}

func TestRollbackStartsKeepTheRollback(t *testing.T) {
	for _, w := range []World{
		world(rollingBack(), heldByParent(), unready(forever)),
		world(rollingBack(), manifest(time.Minute), heldByParent(), unready(forever)),
		world(rollingBack(), free(0), parentDown(0)),
	} {
		require.True(t, remembered(t, Decide(w, Defaults().limits())).Handoff.RollingBack)
	}
}

// A verified handoff ends the activation, and puts the parent on probation: if it
// dies before it has proved itself, its next handoff waits.
func TestVerifiedHandoff(t *testing.T) {
	d := Decide(world(failures(2), taken(10*time.Second), heldByParent(), ready(0)), Defaults().limits())
	probation := store.State{KnownGood: 7, Rollbacks: 1, RetryAt: now + time.Minute, RetryBoot: boot, FailedParent: "parent-pod"}
	require.Equal(t, probation, remembered(t, d))

	d = Decide(world(failedParent("parent-pod", 0), taken(10*time.Second), heldByParent(), ready(0)), Defaults().limits())
	require.Equal(t, now+2*time.Minute, remembered(t, d).RetryAt, "twice as long as before")

	d = Decide(world(failedParent("parent-pod", time.Hour), heldByParent(), ready(time.Minute)), Defaults().limits())
	require.Equal(t, store.State{KnownGood: 7}, remembered(t, d), "it has proved itself")
	d = Decide(world(failedParent("parent-pod", time.Hour), heldByParent(), ready(59*time.Second)), Defaults().limits())
	require.Nil(t, d.Action, d.Why)
}

func TestRemovedManifestOpensAHandoffThatIsTaken(t *testing.T) {
	d := Decide(world(served(), heldByParent(), waits(Checkpoint), ready(forever)), Defaults().limits())
	require.Equal(t, &store.Handoff{
		BootID: boot, At: now, Activation: "active", ParentUID: "parent-pod", Container: "parent-container", HeldAt: now,
	}, remembered(t, d).Handoff)
}
