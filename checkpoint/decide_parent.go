package checkpoint

import (
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// decideParentServes: the parent holds the lock. What is left to do is to let
// go of our manifest, to see the handoff verified, or to take it back.
func decideParentServes(w World, parent Party, limits Limits) Decision {
	switch handoff := w.handoff(); {
	case handoff != nil && handoff.RollingBack:
		return decideRollingBack(w, parent, limits)
	case w.active() != nil && w.Ending && w.Locked:
		return stay(Protected, "holder=parent parent=ending checkpoint=waits")
	case w.active() != nil:
		return act(HandingOff, yield(w, parent), "holder=parent manifest=present")
	case handoff != nil:
		return decideVerifying(w, parent, *handoff, limits)
	case w.state().Handoff != nil: // of an earlier boot, and never verified
		return act(HandingOff, takeOver(w, parent), "holder=parent verified=no")
	}
	return decideProtected(w, parent, limits)
}

// yield removes the manifest behind a parent that serves already.
func yield(w World, parent Party) HandOver {
	next := w.state()
	next.Handoff = &store.Handoff{
		BootID: w.Boot, At: w.Now, Activation: w.active().ID,
		ParentUID: parent.Pod, Container: parent.ID, HeldAt: w.Now,
	}
	return HandOver{Parent: parent, Generation: w.active().Generation, Remember: next}
}

// decideVerifying: the manifest is gone and the parent has the lock; it still
// has to show that it is ready. A process that merely holds the lock never does.
func decideVerifying(w World, parent Party, handoff store.Handoff, limits Limits) Decision {
	next := w.state()
	switch {
	case handoff.Container == "" || handoff.Container != parent.ID && w.excused():
		return act(HandingOff, takeOver(w, parent), "holder=parent")
	case handoff.Container != parent.ID:
		return act(RollingBack, Remember{failed(w, next), "the parent exited"}, "holder=parent before=%s", handoff.Container)
	}
	ready, known := w.Ready.Value()
	switch {
	case !known:
		return frozen(HandingOff, []string{"readiness"}, "holder=parent ready=unknown why=%q", w.Ready.Why())
	case ready.OK:
		return act(HandingOff, Remember{verified(w, parent), "the handoff is verified"}, "holder=parent ready=yes")
	case w.overdue(handoff.HeldAt, limits.HandoffTimeout):
		return act(RollingBack, Remember{failed(w, next), "the parent failed"},
			"holder=parent ready=no since=%s why=%q", w.age(handoff.HeldAt), ready.Why)
	}
	return waitsFor(stay(HandingOff, "holder=parent ready=no since=%s", w.age(handoff.HeldAt)), w.missing())
}

// takeOver notes which container of the parent has the lock, and since when.
func takeOver(w World, parent Party) Remember {
	next := w.state()
	next.Handoff = &store.Handoff{
		BootID: w.Boot, At: w.Now, Activation: next.Handoff.Activation,
		ParentUID: parent.Pod, Container: parent.ID, HeldAt: w.Now,
	}
	return Remember{next, "the parent took over"}
}

// verified is the state after a handoff that is done. Until the parent has proved
// itself, its next try counts as if this one had failed: one that becomes ready and
// dies, over and over, may not take the checkpoint down each time.
func verified(w World, parent Party) store.State {
	state := w.state()
	state.Activation, state.Failures, state.Handoff = nil, 0, nil
	return held(w, state, parent.Pod)
}

// proven is the state once the parent that took over was ready for long.
func proven(state store.State) store.State {
	state.Rollbacks, state.RetryAt, state.RetryBoot, state.FailedParent = 0, 0, "", ""
	return state
}

// held lets the next handoff to this pod wait, twice as long as the one before.
func held(w World, state store.State, pod string) store.State {
	state.RetryAt = w.Now + doubled(firstRollback, maxRollback, state.Rollbacks)
	state.RetryBoot = w.Boot
	state.Rollbacks++
	state.FailedParent = pod
	return state
}

// failed is the state once the parent took the lock and did not become ready:
// the handoff is to be taken back, and the same parent waits for its next try.
func failed(w World, state store.State) store.State {
	handoff := *state.Handoff
	handoff.RollingBack = true
	state.Handoff = &handoff
	return held(w, state, handoff.ParentUID)
}

// decideRollingBack: the parent holds the lock and failed. First a process of
// ours must wait for the lock, only then is the parent stopped.
func decideRollingBack(w World, parent Party, limits Limits) Decision {
	if ready, known := w.Ready.Value(); known && ready.OK {
		return act(HandingOff, Remember{verified(w, parent), "the parent became ready after all"}, "holder=parent ready=yes")
	}
	active := w.active()
	keep := func(next *store.State) { next.Handoff = w.state().Handoff }
	switch {
	case active == nil:
		return start(w, RollingBack, keep, "holder=parent ready=no manifest=none")
	case w.waits(Checkpoint) && !w.excused():
		return act(RollingBack, StopParent{Parent: parent, Grace: w.Grace}, "holder=parent ready=no checkpoint=waits")
	case !w.waits(Checkpoint) && candidateFailed(w, active.Since, limits):
		return start(w, RollingBack, func(next *store.State) { keep(next); next.Failures++ },
			"checkpoint=not-waiting since=%s", w.age(active.Since))
	}
	return waitsFor(stay(RollingBack, "holder=parent ready=no checkpoint=starting since=%s", w.age(active.Since)), w.missing())
}

// decideProtected: the parent serves and nothing of ours is in its way.
func decideProtected(w World, parent Party, limits Limits) Decision {
	if d, due := endOrphan(w); due {
		d.State = Protected
		return d
	}
	if w.Ending && w.Locked && len(w.awaited()) == 0 && len(candidates(w)) > 0 {
		// It has closed its port, and keeps its lock while the kubelet gives it time.
		return start(w, Protected, nil, "holder=parent parent=ending")
	}
	parents, known := w.API.Value()
	if known && parents.Changed {
		return act(Protected, snapshotAfter(w), "holder=parent generation=outdated")
	}
	ready, asked := w.Ready.Value()
	if w.state().Rollbacks > 0 && asked && ready.OK && w.age(ready.Since) >= limits.KnownGoodAfter {
		return act(Protected, Remember{proven(w.state()), "the parent has proved itself"}, "holder=parent ready=%s", w.age(ready.Since))
	}
	if known && parents.Saved[parent.Pod] && asked && ready.OK && w.age(ready.Since) >= limits.KnownGoodAfter && !proved(w, parent) {
		next := w.state()
		next.KnownGood, next.KnownGoodContainer = newest(w).Seq, parent.ID
		return act(Protected, Remember{next, "known-good"}, "holder=parent ready=%s", w.age(ready.Since))
	}
	if asked && !ready.OK {
		return stay(Protected, "holder=parent ready=no since=%s why=%q", w.age(ready.Since), ready.Why)
	}
	return stay(Protected, "holder=parent")
}

// proved tells whether the newest generation needs no further proof, or can't
// have one from this container: a payload that was written after the container
// started is not what it started with.
func proved(w World, parent Party) bool {
	record, _ := w.Record.Value()
	if record.State.KnownGood == newest(w).Seq {
		return true
	}
	for i, g := range record.Generations[1:] {
		after := record.Generations[i]
		startedBefore := after.Source.ContainerID == parent.ID || after.Source.ContainerID == unseenContainer
		if !startedBefore || !samePayloads(after, g) {
			return startedBefore
		}
	}
	return false
}

func samePayloads(a, b store.Generation) bool {
	if len(a.Payloads) != len(b.Payloads) {
		return false
	}
	for volume, digest := range a.Payloads {
		if b.Payloads[volume] != digest {
			return false
		}
	}
	return true
}

func newest(w World) store.Generation {
	record, _ := w.Record.Value()
	return record.Generations[0]
}

// endOrphan ends a checkpoint that waits though its manifest is gone. A synced
// kubelet does so by itself; one that is not has forgotten the pod.
func endOrphan(w World) (Decision, bool) {
	queue, _ := w.Queue.Value()
	for _, party := range queue {
		if party.Role == Stale && w.age(party.Since) >= orphanGrace {
			return act("", End{Party: party}, "waiter=orphan activation=%s", party.Activation), true
		}
	}
	return Decision{}, false
}
