package checkpoint

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// An option is one of the things that a source may say; a dimension is all of
// them.
type (
	option struct {
		name string
		see  saw
	}
	dimension []option
)

// everything is each source with each of its answers. Ages are set by the last
// dimension, so that it comes last.
var everything = []dimension{
	{{"locked", func(*World) {}}, {"lockless", withoutLock()}},
	{
		{"nobody serves", heldBy(Nobody, 0)}, {"the parent serves", heldBy(Parent, 0)},
		{"a checkpoint serves", heldBy(Checkpoint, 0)}, {"a stale one serves", heldBy(Stale, 0)},
		{"a foreigner serves", heldBy(Foreign, 0)},
		{"who serves is unknown", func(w *World) { w.Serves = Unknown[Party]("silent") }},
	},
	{
		{"nobody waits", waits()}, {"the parent waits", waits(Parent)}, {"a checkpoint waits", waits(Checkpoint)},
		{"a stale one waits", waits(Stale)}, {"a foreigner waits", waits(Foreign)},
		{"who waits is unknown", func(w *World) { w.Queue = Unknown[[]Party]("silent") }},
	},
	{{"no manifest", func(*World) {}}, {"manifest", manifest(0)}, {"manifest that served", served()}, {"manifest unknown", manifestsUnknown()}},
	{{"ready", ready(0)}, {"unready", unready(0)}, {"readiness unknown", func(*World) {}}},
	{{"parent live", parentLive(0)}, {"parent gone", parentDeleted()}, {"parent exited twice", parentTwice()}, {"runtime unknown", runtimeUnknown()}},
	{{"synced", func(*World) {}}, {"unsynced", unsynced()}, {"kubelet unknown", kubeletUnknown()}},
	{{"api", func(*World) {}}, {"parent changed", changed()}, {"api unknown", apiUnknown()}, {"parent ending", beingDeleted()}},
	{{"no handoff", func(*World) {}}, {"handoff", handoff(0)}, {"handoff taken", taken(0)}, {"rolling back", rollingBack()}},
	{
		{"known-good", func(*World) {}}, {"nothing known-good", knownGood(0)}, {"failures", failures(3)},
		{"no usable generation", func(w *World) { w.Unusable = map[int64]string{7: "no image", 8: "no image"} }},
		{"store unknown", storeUnknown()}, {"a dependency is away", away()}, {"newer files", changedIn("certs")},
		{"data lost", dataIs(Known("empty"))}, {"data unseen", dataIs(Unknown[string]("silent"))},
	},
	{{"just now", aged(500 * time.Millisecond)}, {"for long", aged(forever)}},
}

// aged makes everything be as it is for so long, but for a dependency.
func aged(long time.Duration) saw {
	at := now - long
	return func(w *World) {
		w.Serves.value.Since, w.Ready.value.Since, w.Parent.value.Since = at, at, at
		if active := w.active(); active != nil {
			aged := *active
			aged.Since = at
			w.Active.value = &aged
		}
		if handoff := w.state().Handoff; handoff != nil {
			aged := *handoff
			aged.At, aged.HeldAt = at, at
			w.Record.value.State.Handoff = &aged
		}
	}
}

// visitAll calls visit with every combination of options.
func visitAll(w World, names []string, dimensions []dimension, visit func(World, []string)) {
	if len(dimensions) == 0 {
		visit(w, names)
		return
	}
	for _, o := range dimensions[0] {
		with := w
		o.see(&with)
		visitAll(with, append(names, o.name), dimensions[1:], visit)
	}
}

// A promise holds in every world, whatever is decided there.
type promise struct {
	name   string
	broken func(w World, d Decision) bool
}

var promises = []promise{
	{"the state is one of States", func(_ World, d Decision) bool { return !slices.Contains(States, d.State) }},
	{"it says why", func(_ World, d Decision) bool { return d.Why == "" || strings.Contains(d.Why, "%!") }},
	{"an action's sources are all Known", func(w World, d Decision) bool {
		return d.Action != nil && slices.ContainsFunc(d.Action.needs(w.Locked), func(source string) bool {
			_, known := w.ask(source)
			return !known
		})
	}},
	{"what is frozen does nothing, and its source is silent", func(w World, d Decision) bool {
		return len(d.Frozen) > 0 && (d.Action != nil || slices.ContainsFunc(d.Frozen, func(source string) bool {
			if source == "runtime" && !w.Locked { // it also tells who serves
				_, seen := w.Serves.Value()
				_, known := w.ask(source)
				return seen && known
			}
			_, known := w.ask(source)
			return known
		}))
	}},
	{"a checkpoint hands over only to a parent that is first in line, and under a synced kubelet", func(w World, d Decision) bool {
		a, ok := d.Action.(HandOver)
		return ok && a.Holder.Role != Nobody && !(ours(a.Holder) && holds(w, a.Holder) && w.next() == a.Parent && a.Parent.Role == Parent && isSynced(w))
	}},
	{"a manifest is removed for nobody but a parent that holds", func(w World, d Decision) bool {
		a, ok := d.Action.(HandOver)
		return ok && a.Holder.Role == Nobody && !(a.Parent.Role == Parent && holds(w, a.Parent))
	}},
	{"no manifest is taken from behind a parent that is being deleted", func(w World, d Decision) bool {
		_, ok := d.Action.(HandOver)
		return ok && w.Ending && w.Locked && w.Serves.value.Role == Parent
	}},
	{"a parent is stopped only to roll back, with our checkpoint behind it", func(w World, d Decision) bool {
		a, ok := d.Action.(StopParent)
		return ok && !(d.State == RollingBack && w.state().Handoff.RollingBack && w.waits(Checkpoint) && a.Parent.Role == Parent && holds(w, a.Parent))
	}},
	{"none is ended but ours", func(_ World, d Decision) bool {
		a, ok := d.Action.(End)
		return ok && !ours(a.Party)
	}},
	{"none of ours is ended whose manifest is in place", func(w World, d Decision) bool {
		a, ok := d.Action.(End)
		return ok && w.active() != nil && a.Party.Activation == w.active().ID
	}},
	{"a free lock that nobody will take is taken in this very pass", func(w World, d Decision) bool {
		return w.Locked && isFree(w) && noManifest(w) && !parentLives(w) && !isSynced(w) && !heirExpected(w) && usable(w) && len(w.missing()) == 0 && !starts(d)
	}},
	{"without a lock nothing starts beside a parent that may run", func(w World, d Decision) bool {
		parent, seen := w.Parent.Value()
		return !w.Locked && isFree(w) && noManifest(w) && w.state().Handoff == nil && starts(d) && (!seen || parent.Live)
	}},
	{"a snapshot has an API server behind it", func(w World, d Decision) bool {
		_, known := w.API.Value()
		_, ok := d.Action.(Snapshot)
		return ok && !known
	}},
	{"no copy of an old version starts beside a new one that has not failed", func(w World, d Decision) bool {
		a, ok := d.Action.(Start)
		record, _ := w.Record.Value()
		started, _ := find(record, a.Generation)
		parents, _ := w.API.Value()
		beside := w.Serves.value.Role == Parent && parents.Saved[w.Serves.value.Pod] || w.waits(Parent) && parents.Saved[party(Parent).Pod]
		return ok && w.Locked && beside && w.state().Handoff == nil && started.Spec != newest(w).Spec && w.state().FailedParent == ""
	}},
	{"while a dependency is away nothing is counted, given up, taken back or stopped", func(w World, d Decision) bool {
		if len(w.missing()) == 0 {
			return false
		}
		_, stops := d.Action.(StopParent)
		then, is := stored(d), w.state()
		parent := w.Ready.value.OK // it is verified, and on probation
		return stops || then != nil && (then.Failures > is.Failures || then.Rollbacks > is.Rollbacks && !parent ||
			then.Handoff != nil && then.Handoff.RollingBack && !is.Handoff.RollingBack)
	}},
	{"only a checkpoint that holds and has served gets newer files, and those of its own pod", func(w World, d Decision) bool {
		a, ok := d.Action.(Refresh)
		record, _ := w.Record.Value()
		g, _ := find(record, a.Generation)
		return ok && !(d.State == Serving && w.Serves.value.Role == Checkpoint && w.active() != nil && a.Activation == w.active().ID &&
			a.Generation > w.active().Files && g.Spec == "spec")
	}},
	{"nothing starts on another directory than its own", func(w World, d Decision) bool {
		a, ok := d.Action.(Start)
		directory, needed := w.Data[a.Generation]
		why, known := directory.Value()
		return ok && needed && (!known || why != "")
	}},
	{"a generation is proved only by a parent that holds and is ready", func(w World, d Decision) bool {
		a, ok := d.Action.(Remember)
		ready, _ := w.Ready.Value()
		serves, _ := w.Serves.Value()
		return ok && a.State.KnownGood != w.state().KnownGood && !(serves.Role == Parent && ready.OK)
	}},
}

// stored is what a decision has the store remember, nil if nothing.
func stored(d Decision) *store.State {
	switch a := d.Action.(type) {
	case Start:
		return &a.Remember
	case HandOver:
		return &a.Remember
	case Remember:
		return &a.State
	}
	return nil
}

func ours(p Party) bool { return p.Role == Checkpoint || p.Role == Stale }

func holds(w World, p Party) bool {
	serves, known := w.Serves.Value()
	return known && serves == p
}

func isFree(w World) bool {
	serves, known := w.Serves.Value()
	return known && serves.Role == Nobody
}

func noManifest(w World) bool {
	active, known := w.Active.Value()
	return known && active == nil
}

func parentLives(w World) bool {
	parent, _ := w.Parent.Value()
	return parent.Live
}

func isSynced(w World) bool {
	synced, _ := w.Synced.Value()
	return synced
}

// heirExpected: a checkpoint was just told to go, so the lock passes on.
func heirExpected(w World) bool {
	handoff, serves := w.state().Handoff, w.Serves.value
	return handoff != nil && handoff.Container == "" && w.age(serves.Since) < freeGrace
}

func usable(w World) bool {
	_, known := w.Record.Value()
	_, seen := w.seesData()
	return known && len(w.Unusable) == 0 && seen && !w.dataLost(newest(w).Seq)
}

func starts(d Decision) bool {
	_, ok := d.Action.(Start)
	return ok
}

// TestDecideKeepsItsPromises looks at every combination of what may be seen.
func TestDecideKeepsItsPromises(t *testing.T) {
	limits := Defaults().limits()
	base := world(generations(gen(8, "new"), gen(7, "spec")))
	for _, holder := range everything[1] {
		t.Run(holder.name, func(t *testing.T) {
			t.Parallel()
			dimensions := slices.Clone(everything)
			dimensions[1] = dimension{holder}
			violations := 0
			visitAll(base, nil, dimensions, func(w World, names []string) {
				d := Decide(w, limits)
				for _, p := range promises {
					if p.broken(w, d) {
						violations++
						t.Errorf("broken: %s\n  in: %s\n  got: %s %q, %s", p.name, strings.Join(names, ", "), d.State, follows(d), d.Why)
					}
				}
				if violations == 0 && leavesByDeadline(d.State) {
					later := w
					later.Now += 100 * time.Hour
					if d := Decide(later, limits); leavesByDeadline(d.State) && d.Action == nil && len(d.Frozen) == 0 && !behindForeigner(w) && usable(w) && len(w.missing()) == 0 {
						violations++
						t.Errorf("no deadline: %s\n  got: %s, %s", strings.Join(names, ", "), d.State, d.Why)
					}
				}
				if violations > 10 {
					t.Fatal("and so on")
				}
			})
		})
	}
}

// leavesByDeadline names the states that none leaves only by a restart.
func leavesByDeadline(s State) bool {
	return slices.Contains([]State{Activating, Failing, HandingOff, RollingBack}, s)
}

// behindForeigner: our checkpoint waits behind somebody that we can't place.
// Waiting is never a failure, so this has no deadline.
func behindForeigner(w World) bool {
	serves, _ := w.Serves.Value()
	return serves.Role == Foreign && w.waits(Checkpoint)
}

// TestDecideIsPure: it leaves what it was given as it was.
func TestDecideIsPure(t *testing.T) {
	for _, saws := range [][]saw{
		{taken(time.Hour), heldByParent(), unready(time.Hour)},
		{rollingBack(), manifest(time.Hour), heldByParent()},
		{manifest(time.Hour)},
		{knownGood(0), heldByParent(), ready(time.Hour)},
	} {
		w := world(saws...)
		Decide(w, Defaults().limits())
		require.Equal(t, world(saws...), w)
	}
}
