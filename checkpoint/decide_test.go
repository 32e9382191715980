package checkpoint

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// A row is one promise of the manual: in this world the workload stands in
// this state, and this follows.
type row struct {
	promise string
	world   World
	state   State
	follows string // see follows
}

func check(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.promise, func(t *testing.T) {
			d := Decide(r.world, Defaults().limits())
			assert.Equal(t, r.state, d.State, d.Why)
			assert.Equal(t, r.follows, follows(d), d.Why)
		})
	}
}

// follows says in a few words what a decision does, or whose silence holds it.
func follows(d Decision) string {
	if len(d.Frozen) > 0 {
		return "frozen: " + strings.Join(d.Frozen, " ")
	}
	switch a := d.Action.(type) {
	case nil:
		return ""
	case Start:
		return fmt.Sprintf("start %d", a.Generation)
	case HandOver:
		if a.Holder.Role == Nobody {
			return "remove the manifest"
		}
		return fmt.Sprintf("end the %s for the %s", a.Holder.Role, a.Parent.Role)
	case End:
		return fmt.Sprintf("end the %s", a.Party.Role)
	case StopParent:
		return fmt.Sprintf("stop the %s", a.Parent.Role)
	case Remember:
		return "remember: " + a.What
	}
	return d.Action.key()
}

// remembered is what a decision has the store remember.
func remembered(t *testing.T, d Decision) store.State {
	t.Helper()
	switch a := d.Action.(type) {
	case Start:
		return a.Remember
	case HandOver:
		return a.Remember
	case Remember:
		return a.State
	}
	require.Failf(t, "nothing to remember", "%s: %s", d.State, d.Why)
	return store.State{}
}

const (
	boot    = "this boot"
	now     = 10 * time.Hour
	forever = 9 * time.Hour // everything that is not said otherwise is so for so long
)

// saw is one thing that a pass saw.
type saw func(*World)

// world is an hour of nothing: a free lock, no manifest, a parent that ended
// long ago, and every source Known. Generation 7 is on disk and known-good.
func world(saws ...saw) World {
	w := World{
		Now: now, Boot: boot, Locked: true, Workload: store.Key{Namespace: "kube-system", Workload: "kube-apiserver"},
		Record: Known(store.Workload{
			Generations: []store.Generation{{Seq: 7, Spec: "spec"}},
			State:       store.State{KnownGood: 7},
		}),
		Active: Known[*Active](nil),
		Serves: Known(Party{Since: now - forever}),
		Queue:  Known[[]Party](nil),
		Parent: Known(Containers{Since: now - forever}),
		Exits:  Known(0),
		Synced: Known(true),
		API:    Known(Parents{Saved: map[string]bool{"parent-pod": true}}),
	}
	for _, see := range saws {
		see(&w)
	}
	return w
}

func party(role Role) Party {
	switch role {
	case Nobody:
		return Party{Since: now - forever}
	case Parent:
		return Party{Role: Parent, ID: "parent-container", Pod: "parent-pod", Since: now - forever}
	case Checkpoint:
		return Party{Role: Checkpoint, ID: "ours", Pod: "active", Activation: "active", Since: now - forever}
	case Stale:
		return Party{Role: Stale, ID: "stale", Pod: "older", Activation: "older", Since: now - forever}
	case Foreign:
	}
	return Party{Role: Foreign, ID: "pid 4711", Since: now - forever}
}

// heldBy: who serves, for so long.
func heldBy(role Role, long time.Duration) saw {
	return func(w *World) {
		p := party(role)
		p.Since = now - long
		w.Serves = Known(p)
		if role == Parent {
			w.Parent = Known(Containers{Live: true, Since: p.Since})
		}
	}
}

func heldByParent() saw     { return heldBy(Parent, forever) }
func heldByCheckpoint() saw { return heldBy(Checkpoint, forever) }

// heldByAnother: the checkpoint's process is not the one that served before.
func heldByAnother() saw {
	return func(w *World) {
		heldByCheckpoint()(w)
		w.Serves.value.ID = "ours, restarted"
	}
}
func heldByStale() saw   { return heldBy(Stale, forever) }
func heldByForeign() saw { return heldBy(Foreign, forever) }
func free(long time.Duration) saw {
	return heldBy(Nobody, long)
}

// waits: who waits for the lock, first the first in line.
func waits(roles ...Role) saw {
	return func(w *World) {
		var queue []Party
		for _, role := range roles {
			queue = append(queue, party(role))
		}
		w.Queue = Known(queue)
	}
}

func ready(long time.Duration) saw {
	return func(w *World) { w.Ready = Known(Readiness{OK: true, Since: now - long}) }
}

func unready(long time.Duration) saw {
	return func(w *World) { w.Ready = Known(Readiness{Since: now - long, Why: "503"}) }
}

// manifest: a manifest of ours is in place, and its checkpoint never served.
func manifest(age time.Duration) saw {
	return func(w *World) {
		w.Active = Known(&Active{ID: "active", Generation: 7, Files: 7, Since: now - age})
	}
}

// served: a manifest of ours is in place for long, and its checkpoint has served.
func served() saw {
	return func(w *World) {
		w.Active = Known(&Active{ID: "active", Generation: 7, Files: 7, Since: now - forever, ServedBy: "ours"})
	}
}

func exited(n int) saw { return func(w *World) { w.Exits = Known(n) } }

func parentLive(long time.Duration) saw {
	return func(w *World) { w.Parent = Known(Containers{Live: true, Since: now - long}) }
}

func parentDown(long time.Duration) saw {
	return func(w *World) { w.Parent = Known(Containers{Since: now - long}) }
}

func parentDeleted() saw {
	return func(w *World) { w.Parent = Known(Containers{Gone: true, Since: now}) }
}

// parentNew: the API server has one of which the runtime has nothing yet.
func parentNew(long time.Duration) saw {
	return func(w *World) { w.Parent = Known(Containers{New: true, Since: now - long}) }
}

func parentTwice() saw {
	return func(w *World) { w.Parent = Known(Containers{Twice: true, Since: now}) }
}
func unsynced() saw    { return func(w *World) { w.Synced = Known(false) } }
func withoutLock() saw { return func(w *World) { w.Locked = false } }

func kubeletUnknown() saw { return func(w *World) { w.Synced = Unknown[bool]("kubelet: silent") } }
func runtimeUnknown() saw {
	return func(w *World) { w.Parent, w.Exits = Unknown[Containers]("cri: silent"), Unknown[int]("cri: silent") }
}
func lockUnknown() saw {
	return func(w *World) { w.Serves, w.Queue = Unknown[Party]("proc: silent"), Unknown[[]Party]("proc: silent") }
}
func manifestsUnknown() saw {
	return func(w *World) { w.Active = Unknown[*Active]("directory: silent") }
}
func apiUnknown() saw { return func(w *World) { w.API = Unknown[Parents]("api: refused") } }
func storeUnknown() saw {
	return func(w *World) { w.Record = Unknown[store.Workload]("store: silent") }
}

// changed: the newest parent differs from the newest generation.
func changed() saw { return func(w *World) { w.API = Known(Parents{Changed: true}) } }
func refused() saw { return func(w *World) { w.API = Known(Parents{Refused: "spec.volumes[0]: csi"}) } }

// remembers changes what the store remembers.
func remembers(change func(*store.State)) saw {
	return func(w *World) {
		record, _ := w.Record.Value()
		change(&record.State)
		w.Record = Known(record)
	}
}

// handoff: the checkpoint was told to go, so long ago, and nobody was seen to
// take the lock since.
func handoff(long time.Duration) saw {
	return remembers(func(s *store.State) {
		s.Handoff = &store.Handoff{BootID: boot, At: now - long, Activation: "active", ParentUID: "parent-pod"}
	})
}

// taken: the parent took the lock so long ago.
func taken(long time.Duration) saw {
	return remembers(func(s *store.State) {
		s.Handoff = &store.Handoff{
			BootID: boot, At: now - long, Activation: "active",
			ParentUID: "parent-pod", Container: "parent-container", HeldAt: now - long,
		}
	})
}

// beforeReboot: whatever handoff there is began in an earlier boot.
func beforeReboot() saw {
	return remembers(func(s *store.State) { s.Handoff.BootID = "an earlier boot" })
}

func rollingBack() saw {
	return func(w *World) {
		taken(forever)(w)
		remembers(func(s *store.State) { s.Handoff.RollingBack = true })(w)
	}
}

// failures: so many candidates were given up in this boot.
func failures(n int) saw {
	return remembers(func(s *store.State) {
		s.Activation, s.Failures = &store.Activation{ID: "active", Generation: 7, BootID: boot}, n
	})
}
func rollbacks(n int) saw {
	return remembers(func(s *store.State) { s.Rollbacks = n })
}

func knownGood(seq int64) saw {
	return remembers(func(s *store.State) { s.KnownGood = seq })
}

// generations on disk, newest first.
func generations(gs ...store.Generation) saw {
	return func(w *World) {
		record, _ := w.Record.Value()
		record.Generations = gs
		w.Record = Known(record)
	}
}

func absent(seqs ...int64) saw {
	return func(w *World) {
		w.Absent = map[int64]string{}
		for _, seq := range seqs {
			w.Absent[seq] = "an image"
		}
	}
}

func unusableGeneration(seq int64) saw {
	return func(w *World) { w.Unusable = map[int64]string{seq: "image is not here"} }
}

func tried(key string, count int, ago time.Duration) saw {
	return func(w *World) { w.Tried = Tried{Key: key, Count: count, Last: now - ago, Err: "EROFS"} }
}
