package checkpoint

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// State is where a workload stands, derived anew in each pass.
type State string

const (
	// Unprotected: no complete generation yet.
	Unprotected State = "Unprotected"
	// Unprotectable: the parent can't be made static, and nothing is saved of it.
	Unprotectable State = "Unprotectable"
	// Protected: the parent serves, a generation is on disk.
	Protected State = "Protected"
	// Pending: a generation is on disk, nobody serves, a start is not yet due.
	Pending State = "Pending"
	// Activating: the manifest is written, its checkpoint is not yet ready.
	Activating State = "Activating"
	// Failing: this candidate does not start; the next one follows.
	Failing State = "Failing"
	// Serving: the checkpoint serves.
	Serving State = "Serving"
	// HandingOff: the checkpoint was told to go, the parent is next.
	HandingOff State = "HandingOff"
	// RollingBack: the parent took over and failed.
	RollingBack State = "RollingBack"
	// Stuck: an action was repeated and the world did not change.
	Stuck State = "Stuck"
)

// States names every state.
var States = []State{Unprotected, Unprotectable, Protected, Pending, Activating, Failing, Serving, HandingOff, RollingBack, Stuck}

// Limits are the durations that Decide goes by; see Config for their meaning.
type Limits struct {
	KnownGoodAfter, ActivateAfter, StartTimeout, HandoffSettle, HandoffTimeout time.Duration
}

const (
	restartGrace  = 3 * time.Second  // a synced kubelet starts a container again sooner
	freeGrace     = time.Second      // a lock that is free for longer has no heir
	orphanGrace   = 10 * time.Second // a synced kubelet has ended a removed checkpoint by then
	maxExits      = 3                // of one candidate
	firstBackoff  = 10 * time.Second // before the third round of candidates, doubled from there
	maxBackoff    = 5 * time.Minute
	firstRollback = time.Minute // before a parent that failed gets its next try
	maxRollback   = 30 * time.Minute
	maxTries      = 5 // of one action, before it is Stuck
	stuckBeat     = 10 * time.Second
)

// Decision is what follows from a World: where the workload stands, why, and
// at most one action.
type Decision struct {
	State  State    // before Action is carried out
	Frozen []string // sources whose silence holds an action back
	// WaitingForDependencies are the workloads that hold a start, a handoff or a
	// verdict back, because they do not answer.
	WaitingForDependencies []string
	Why                    string // key=value words, for the log, the status and a failing test
	Action                 Action // nil: nothing to do
}

// Decide says where the workload stands and what follows. It is pure and
// total: any World has an answer.
func Decide(w World, limits Limits) Decision {
	return damp(permit(derive(w, limits), w), w)
}

func stay(state State, why string, args ...any) Decision {
	return Decision{State: state, Why: fmt.Sprintf(why, args...)}
}

// frozen waits for sources that are silent.
func frozen(state State, sources []string, why string, args ...any) Decision {
	return Decision{State: state, Frozen: sources, Why: fmt.Sprintf(why, args...)}
}

func act(state State, action Action, why string, args ...any) Decision {
	return Decision{State: state, Action: action, Why: fmt.Sprintf(why, args...)}
}

// derive names the state and the action that it asks for, whether or not the
// sources allow it.
func derive(w World, limits Limits) Decision {
	record, ok := w.Record.Value()
	if !ok {
		return frozen(unseen(w), []string{"store"}, "store=unknown why=%q", w.Record.Why())
	}
	if len(record.Generations) == 0 {
		return decideUnprotected(w)
	}
	serves, ok := w.Serves.Value()
	if !ok {
		return decideUnseen(w)
	}
	switch serves.Role {
	case Parent:
		return decideParentServes(w, serves, limits)
	case Checkpoint, Stale:
		return decideWeServe(w, serves, limits)
	case Foreign:
		return decideForeignServes(w, serves, limits)
	case Nobody:
	}
	return decideNobodyServes(w, serves, limits)
}

func decideUnprotected(w World) Decision {
	parents, ok := w.API.Value()
	switch {
	case !ok:
		return frozen(Unprotected, []string{"api"}, "generation=none why=%q", w.API.Why())
	case parents.Refused != "":
		return stay(Unprotectable, "%s", parents.Refused)
	case parents.Changed:
		return act(Unprotected, snapshotAfter(w), "generation=none parent=complete")
	}
	return stay(Unprotected, "generation=none parent=absent")
}

// decideUnseen: whoever serves can't be seen. Without a lock a start waits for
// the runtime; with one, the lock table is the one thing that a start needs.
func decideUnseen(w World) Decision {
	source := "lock"
	if !w.Locked {
		source = "runtime"
	}
	return frozen(unseen(w), []string{source}, "serves=unknown why=%q", w.Serves.Why())
}

// unseen is the state as the manifest alone tells it.
func unseen(w World) State {
	if w.active() != nil {
		return Activating
	}
	return Pending
}

// permit takes back an action whose sources are not all Known, and names them.
func permit(d Decision, w World) Decision {
	if d.Action == nil {
		return d
	}
	var silent []string
	for _, source := range d.Action.needs(w.Locked) {
		if why, known := w.ask(source); !known {
			silent = append(silent, source)
			d.Why += fmt.Sprintf(" %s=unknown (%s)", source, why)
		}
	}
	if len(silent) > 0 {
		d.Action = nil
		d.Frozen = silent
	}
	return d
}

// ask tells whether a source of the table in Action.needs is Known.
func (w World) ask(source string) (why string, known bool) {
	switch source {
	case "store":
		return told(w.Record)
	case "manifests":
		return told(w.Active)
	case "lock":
		return told(w.Serves)
	case "runtime":
		return told(w.Parent)
	case "kubelet":
		return told(w.Synced)
	case "readiness":
		return told(w.Ready)
	case "api":
		return told(w.API)
	case "data":
		return w.seesData()
	}
	return "no such source", false
}

// damp keeps an action from being repeated faster than the world can change,
// and calls it Stuck when the world did not change after several. A stuck
// action is still tried, slowly: when its cause is gone, nobody has to come.
func damp(d Decision, w World) Decision {
	if d.Action == nil || d.Action.key() != w.Tried.Key {
		return d
	}
	patience := d.Action.patience()
	if w.Tried.Count >= maxTries {
		patience = max(patience, stuckBeat)
		d.Why = strings.TrimSpace(fmt.Sprintf("%s was done %d times and nothing changed; %s %s", w.Tried.Key, w.Tried.Count, d.Why, w.Tried.Err))
		d.State = Stuck
	}
	if w.age(w.Tried.Last) < patience {
		d.Action = nil
	}
	return d
}

// snapshotAfter is the action that makes the newest parent a generation.
func snapshotAfter(w World) Snapshot {
	record, _ := w.Record.Value()
	if len(record.Generations) == 0 {
		return Snapshot{}
	}
	return Snapshot{After: record.Generations[0].Seq}
}

// candidates are the generations that may be started, the most trusted first:
// the newest that differs from known-good in nothing but payloads, known-good
// itself, the newest. One whose image is absent is passed over, unless that leaves
// none: then a registry that answers is the last hope. One whose data is lost, or of an
// older spec than a parent's that holds the lock or waits for it, is none.
func candidates(w World) []store.Generation {
	beside := beside(w)
	readable := func(g store.Generation) bool {
		return w.Unusable[g.Seq] == "" && !w.dataLost(g.Seq) && (g.Seq >= beside.Seq || g.Spec == beside.Spec)
	}
	order := trusted(w, func(g store.Generation) bool { return readable(g) && w.Absent[g.Seq] == "" })
	if len(order) == 0 {
		order = trusted(w, readable)
	}
	return order
}

// beside is the newest generation whose parent holds the lock or waits for it, the
// zero Generation if there is none. A parent that failed does not count, since the
// older one is there to stand in for it.
func beside(w World) store.Generation {
	record, _ := w.Record.Value()
	serves, _ := w.Serves.Value()
	queue, _ := w.Queue.Value()
	for i, g := range record.Generations { // newest first
		runs := func(p Party) bool { return w.runs(p, g, i == 0) }
		if runs(serves) || slices.ContainsFunc(queue, runs) {
			return g
		}
	}
	return store.Generation{}
}

// runs tells whether a party is a parent of that generation and has not failed.
func (w World) runs(p Party, g store.Generation, newest bool) bool {
	record, _ := w.Record.Value()
	parents, _ := w.API.Value()
	failed := record.State.RetryBoot == w.Boot && record.State.FailedParent == p.Pod
	return p.Role == Parent && !failed && (g.Source.PodUID == p.Pod || newest && parents.Saved[p.Pod])
}

func trusted(w World, usable func(store.Generation) bool) []store.Generation {
	record, _ := w.Record.Value()
	var order []store.Generation
	add := func(g store.Generation) {
		listed := slices.ContainsFunc(order, func(o store.Generation) bool { return o.Seq == g.Seq })
		if usable(g) && !listed {
			order = append(order, g)
		}
	}
	good := slices.IndexFunc(record.Generations, func(g store.Generation) bool { return g.Seq == record.State.KnownGood })
	if good >= 0 {
		for _, g := range record.Generations { // newest first
			if g.Spec == record.Generations[good].Spec {
				add(g)
				break
			}
		}
		add(record.Generations[good])
	}
	for _, g := range record.Generations[:min(1, len(record.Generations))] {
		add(g)
	}
	return order
}

// start begins an activation of the candidate whose turn it is.
func start(w World, state State, change func(*store.State), why string, args ...any) Decision {
	order := candidates(w)
	if len(order) == 0 {
		d := stay(state, why, args...)
		d.Why += " candidates=none " + unusable(w)
		return d
	}
	next := w.state()
	next.Handoff = nil
	if change != nil {
		change(&next)
	}
	chosen := order[next.Failures%len(order)]
	if unseen := w.dataUnseen(chosen.Seq); unseen != "" {
		d := frozen(state, []string{"data"}, why, args...)
		d.Why += fmt.Sprintf(" generation=%d data=unknown why=%q", chosen.Seq, unseen)
		return d
	}
	d := act(state, Start{Generation: chosen.Seq, Remember: next}, why, args...)
	d.Why += fmt.Sprintf(" generation=%d", chosen.Seq)
	return d
}

func unusable(w World) string {
	var words []string
	for seq, why := range w.Unusable {
		words = append(words, fmt.Sprintf("generation-%d=%q", seq, why))
	}
	for seq := range w.Data {
		if why, _ := w.Data[seq].Value(); why != "" {
			words = append(words, fmt.Sprintf("generation-%d=%q", seq, "DataMissing: "+why))
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// doubled is first, doubled n times, at most limit.
func doubled(first, limit time.Duration, n int) time.Duration {
	for ; n > 0 && first < limit; n-- {
		first *= 2
	}
	return min(first, limit)
}
