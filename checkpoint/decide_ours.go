package checkpoint

import (
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// decideWeServe: a checkpoint holds the lock.
func decideWeServe(w World, holder Party, limits Limits) Decision {
	return meanwhile(decideHolder(w, holder, limits), w, holder)
}

// decideHolder says how it goes on with the checkpoint that holds the lock.
func decideHolder(w World, holder Party, limits Limits) Decision {
	if handoff := w.handoff(); handoff != nil && handoff.RollingBack {
		next := w.state()
		next.Handoff = nil
		return act(RollingBack, Remember{next, "the handoff was taken back"}, "holder=%s", holder.Role)
	}
	if w.active() == nil {
		return decideLeaving(w, holder)
	}
	ready, known := w.Ready.Value()
	switch {
	case !known:
		return frozen(holding(w, holder), []string{"readiness"}, "holder=%s ready=unknown why=%q", holder.Role, w.Ready.Why())
	case ready.OK && holder.Role == Checkpoint && !(w.active().ServedBy == holder.ID && w.state().Failures == 0):
		next := w.state()
		next.Failures = 0
		next.Activation = &store.Activation{ID: w.active().ID, Generation: w.active().Generation, BootID: w.Boot, At: w.active().Since, ServedBy: holder.ID}
		return act(Serving, Remember{next, "this candidate serves"}, "holder=checkpoint ready=yes")
	case ready.OK:
		return decideServing(w, holder, ready, limits)
	case w.overdue(max(ready.Since, holder.Since), limits.StartTimeout):
		return decideUnready(w, holder, ready)
	}
	d := stay(holding(w, holder), "holder=%s ready=no since=%s why=%q", holder.Role, w.age(holder.Since), ready.Why)
	return waitsFor(d, w.missing())
}

// holding is the state of a checkpoint that holds the lock and is not ready: one
// that has been is Serving, until its process ends.
func holding(w World, holder Party) State {
	if w.active().ServedBy == holder.ID {
		return Serving
	}
	return Activating
}

// decideServing: the checkpoint is ready, and gives way once it is settled and
// the parent stands first in line.
func decideServing(w World, holder Party, ready Readiness, limits Limits) Decision {
	why := handoffWaits(w)
	if settled := w.age(max(ready.Since, holder.Since)); why == "" && settled < limits.HandoffSettle {
		why = "next=parent settling=" + settled.String()
	}
	if why == "" { // before all else, since a snapshot that fails may not hold it up
		return act(Serving, giveWay(w, holder), "holder=%s next=parent", holder.Role)
	}
	d := stay(Serving, "holder=%s %s", holder.Role, why)
	if w.next().Role == Parent {
		d = waitsFor(d, w.missing())
	}
	return d
}

// handoffWaits says what a handoff still waits for, "" if for nothing but the
// settling of the checkpoint.
func handoffWaits(w World) string {
	next, state := w.next(), w.state()
	synced, known := w.Synced.Value()
	switch {
	case next.Role != Parent:
		return "next=" + next.Role.String()
	case known && !synced:
		return "next=parent kubelet=unsynced"
	case state.RetryBoot == w.Boot && next.Pod == state.FailedParent && w.Now < state.RetryAt:
		return "next=parent failed-before retry-in=" + (state.RetryAt - w.Now).String()
	case len(w.missing()) > 0: // it could not show that it is well
		return "next=parent"
	}
	return ""
}

// giveWay ends the holder in favour of the parent.
func giveWay(w World, holder Party) HandOver {
	next := w.state()
	next.Handoff = &store.Handoff{BootID: w.Boot, At: w.Now, Activation: holder.Activation, ParentUID: w.next().Pod}
	return HandOver{
		Holder: holder, Parent: w.next(), Grace: w.Grace, Remember: next,
		Generation: max(w.active().Generation, w.active().Files), Gone: gone(w, *next.Handoff),
	}
}

// decideUnready: the holder had its time and is not ready. The parent gets its
// turn; where there is none, the next candidate. A silent kubelet gives it none
// either: it may wait for this very API server to be synced.
func decideUnready(w World, holder Party, ready Readiness) Decision {
	since := w.age(ready.Since)
	_, synced := w.Synced.Value()
	switch {
	case synced && handoffWaits(w) == "":
		return act(holding(w, holder), giveWay(w, holder), "holder=%s ready=no since=%s next=parent", holder.Role, since)
	case holder.Role == Stale:
		return act(Failing, End{Party: holder, Grace: w.Grace}, "holder=stale-checkpoint ready=no since=%s", since)
	case w.active().ServedBy == holder.ID:
		return stay(Serving, "holder=checkpoint ready=no since=%s why=%q", since, ready.Why)
	}
	return nextCandidate(w, "holder=checkpoint ready=no since=%s why=%q", since, ready.Why)
}

// nextCandidate gives this one up. Each round through all candidates waits
// longer than the one before.
func nextCandidate(w World, why string, args ...any) Decision {
	rounds := 0
	if n := len(candidates(w)); n > 0 {
		rounds = (w.state().Failures + 1) / n
	}
	if rounds > 1 {
		if wait := doubled(firstBackoff, maxBackoff, rounds-2) - w.age(w.active().Since); wait > 0 {
			d := stay(Failing, why, args...)
			d.Why += " retry-in=" + wait.String()
			return d
		}
	}
	return start(w, Failing, func(next *store.State) { next.Failures++ }, why, args...)
}

// decideLeaving: a checkpoint holds the lock and has no manifest. Either it was
// told to go, or somebody took the manifest away.
func decideLeaving(w World, holder Party) Decision {
	handoff := w.handoff()
	switch {
	case handoff == nil && !w.Locked && w.next().Role == Parent: // it runs beside us already
		return act(HandingOff, End{Party: holder, Grace: w.Grace}, "holder=%s manifest=lost next=parent", holder.Role)
	case handoff == nil:
		return start(w, Activating, nil, "holder=%s manifest=lost", holder.Role)
	case w.next().Role == Parent:
		return act(HandingOff, End{Party: holder, Grace: w.Grace}, "holder=%s manifest=removed next=parent", holder.Role)
	}
	return start(w, HandingOff, func(next *store.State) { *next = gone(w, *handoff) },
		"holder=%s manifest=removed next=%s", holder.Role, w.next().Role)
}

// gone is the state once a parent that was to take over stands in line no more: its
// next try waits, or it would take the checkpoint down each time that the kubelet
// restarts it.
func gone(w World, handoff store.Handoff) store.State {
	next := w.state()
	next.Handoff = nil
	if w.excused() {
		return next
	}
	return held(w, next, handoff.ParentUID)
}

// decideForeignServes: somebody we can't place holds the lock, so the guarded
// program is alive, and what we have waits behind it.
func decideForeignServes(w World, holder Party, limits Limits) Decision {
	handoff := w.handoff()
	switch {
	case handoff != nil && w.active() == nil && w.age(handoff.At) >= limits.HandoffTimeout:
		return start(w, HandingOff, nil, "holder=foreign id=%s", holder.ID)
	case handoff != nil && w.active() == nil:
		return stay(HandingOff, "holder=foreign id=%s", holder.ID)
	case w.active() != nil && !w.waits(Checkpoint) && candidateFailed(w, w.active().Since, limits):
		return nextCandidate(w, "holder=foreign checkpoint=not-waiting since=%s", w.age(w.active().Since))
	case w.active() != nil:
		return stay(Activating, "holder=foreign id=%s", holder.ID)
	}
	if parents, known := w.API.Value(); known && parents.Changed {
		return act(Protected, snapshotAfter(w), "holder=foreign id=%s generation=outdated", holder.ID)
	}
	return stay(Protected, "holder=foreign id=%s", holder.ID)
}
