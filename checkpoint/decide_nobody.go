package checkpoint

import (
	"fmt"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// decideNobodyServes: the lock is free. If a manifest of ours is in place, its
// checkpoint is on the way; else one may be due.
func decideNobodyServes(w World, free Party, limits Limits) Decision {
	handoff := w.handoff()
	switch {
	case w.active() != nil:
		return decideActivating(w, free, limits)
	case handoff == nil:
		return decidePending(w, free, limits)
	case handoff.RollingBack:
		keep := func(next *store.State) { next.Handoff = handoff }
		return start(w, RollingBack, keep, "holder=none manifest=none")
	}
	return decideHeirless(w, *handoff, free, limits)
}

// decideHeirless: the checkpoint was told to go, and the lock is free.
func decideHeirless(w World, handoff store.Handoff, free Party, limits Limits) Decision {
	if handoff.Container != "" && w.excused() { // no verdict on the parent
		next := w.state()
		next.Handoff = nil
		return waitsFor(act(HandingOff, Remember{next, "the parent ended for want of a dependency"}, "holder=none parent=exited"), w.missing())
	}
	if handoff.Container != "" {
		back := func(next *store.State) { *next = failed(w, w.state()) }
		return start(w, RollingBack, back, "holder=none parent=exited")
	}
	patience := freeGrace
	if !w.Locked { // the parent may have ended while our program had its port, and be in the kubelet's backoff
		patience = doubled(limits.ActivateAfter, maxBackoff, w.state().Rollbacks)
	}
	if w.age(free.Since) < patience {
		return stay(HandingOff, "holder=none since=%s", w.age(free.Since))
	}
	return start(w, HandingOff, func(next *store.State) { *next = gone(w, handoff) }, "holder=none since=%s parent=did-not-take-it", w.age(free.Since))
}

// decideActivating: the manifest is written and its process does not hold, not
// yet or not any more. Each time that the lock falls free the kubelet has the
// start timeout to bring it back.
func decideActivating(w World, free Party, limits Limits) Decision {
	awaited := max(w.active().Since, free.Since)
	exits, _ := w.Exits.Value()
	if candidateFailed(w, awaited, limits) {
		return nextCandidate(w, "holder=none exits=%d since=%s", exits, w.age(awaited))
	}
	return waitsFor(stay(Activating, "holder=none exits=%d since=%s", exits, w.age(awaited)), w.missing())
}

// candidateFailed tells whether the activation, which is not in the lock table
// and awaited there since then, had its time, or its exits. While a dependency is
// away none fails.
func candidateFailed(w World, awaited time.Duration, limits Limits) bool {
	exits, known := w.Exits.Value()
	return known && exits >= maxExits && len(w.missing()) == 0 || w.overdue(awaited, limits.StartTimeout)
}

// decidePending: nobody serves and nothing of ours is on the way.
func decidePending(w World, free Party, limits Limits) Decision {
	due, since, why := startDue(w, free, limits)
	_, seen := w.Parent.Value()
	awaited := w.awaited()
	switch {
	case due && len(awaited) > 0 && w.age(since) < maxDependencyWait:
		return waitsFor(stay(Pending, "holder=none %s due-since=%s", why, w.age(since)), awaited)
	case due:
		return start(w, Pending, nil, "holder=none %s", why)
	case !seen:
		return frozen(Pending, []string{"runtime"}, "holder=none %s", why)
	}
	return stay(Pending, "holder=none %s", why)
}

// startDue says whether the parent will not come back by itself, and since when a
// start is due. With a lock an unsynced kubelet may never restart it and a waiter
// does no harm, so a start is due at once; a synced kubelet gets the time that it
// needs. Without a lock two would run side by side, so the parent must have been
// gone for long.
func startDue(w World, free Party, limits Limits) (due bool, since time.Duration, why string) {
	parent, seen := w.Parent.Value()
	synced, told := w.Synced.Value()
	gone, down := w.age(parent.Since), max(parent.Since, free.Since)
	switch {
	case !seen:
		return w.Locked, free.Since, "runtime=unknown"
	case !w.Locked:
		since = parent.Since + limits.ActivateAfter
		return !parent.Live && w.Now >= since, since, fmt.Sprintf("parent-live=%t since=%s", parent.Live, gone)
	case parent.Live: // it runs, but neither holds nor waits
		since = down + limits.ActivateAfter
		return w.Now >= since, since, fmt.Sprintf("parent=running-without-lock since=%s", gone)
	case !told || !synced:
		return true, down, "parent=down kubelet=unsynced"
	case parent.Twice:
		return true, down, "parent=exited-twice"
	case parent.New:
		since = down + limits.ActivateAfter
		return w.Now >= since, since, fmt.Sprintf("parent=not-made-yet since=%s", w.age(down))
	case parent.Gone:
		return true, down, "parent=deleted"
	}
	since = parent.Since + restartGrace
	return w.Now >= since, max(since, free.Since), fmt.Sprintf("parent=down kubelet=restarting since=%s", gone)
}
