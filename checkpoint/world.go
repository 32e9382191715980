package checkpoint

import (
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// Role says whose a process or a container is.
type Role int

const (
	// Nobody is there.
	Nobody Role = iota
	// Parent is the pod from the API.
	Parent
	// Checkpoint is ours, and its manifest is in place.
	Checkpoint
	// Stale is ours, and its manifest is gone or replaced.
	Stale
	// Foreign is neither: a process on the host, or a pod that we can't place.
	Foreign
)

func (r Role) String() string {
	switch r {
	case Nobody:
		return "none"
	case Parent:
		return "parent"
	case Checkpoint:
		return "checkpoint"
	case Stale:
		return "stale-checkpoint"
	case Foreign:
		return "foreign"
	}
	return "invalid"
}

// Party is one process that serves, or waits for its turn.
type Party struct {
	Role       Role
	ID         string // of the container; of a process outside of one, its pid
	Pod        string // pod UID
	Activation string // of a checkpoint

	// Since is the CLOCK_BOOTTIME at which we first saw this party in this
	// place. Nobody is a party too: its Since tells how long a lock is free.
	Since time.Duration
}

// World is what one pass saw of one workload. Times are CLOCK_BOOTTIME within
// the boot named by Boot.
type World struct {
	Now      time.Duration
	Boot     string
	Workload store.Key
	Locked   bool // the workload has a lock; else to serve is to run

	// Record is what the disk holds of it.
	Record Observed[store.Workload]
	// Active is the activation whose manifest is in the static pod directory;
	// nil when none is.
	Active Observed[*Active]
	// Serves is who holds the lock; without one, whose container runs.
	Serves Observed[Party]
	// Queue is who waits for the lock, in the kernel's order; without a lock,
	// the parent that runs, or tries to, beside the checkpoint.
	Queue Observed[[]Party]
	// Ready is what the readiness probe said, asked by us, of who serves.
	Ready Observed[Readiness]
	// Parent is what the runtime shows of the parents' containers.
	Parent Observed[Containers]
	// Exits counts how often the container of Active has ended.
	Exits Observed[int]
	// Synced tells whether the kubelet has its pods from the API.
	Synced Observed[bool]
	// API is what the API server has of the parents.
	API Observed[Parents]
	// After are the workloads after which this one starts.
	After []Dependency

	// Grace is how long a checkpoint that gives way may take after SIGTERM;
	// 0 ends it with SIGKILL at once.
	Grace time.Duration
	// Unusable names the generations that can't be read, and why.
	Unusable map[int64]string
	// Absent names the generations whose image is Known not to be on this node,
	// by the image. The kubelet may still pull it.
	Absent map[int64]string
	// Data tells of each generation that needs a data directory why that is not the one
	// that it was taken with; "": it is.
	Data map[int64]Observed[string]
	// Ending: the API server has said that the parent that serves is being deleted, which
	// nobody takes back. It may say nothing more, if it is that very parent.
	Ending bool
	// Tried is the action that was last carried out, if it still is due.
	Tried Tried
}

// Active is the activation that has a manifest.
type Active struct {
	ID         string
	Generation int64         // that it was started with
	Files      int64         // that its files are of, which may be a newer one; 0: not known
	Fixed      []string      // volumes whose files its containers read once
	Since      time.Duration // when the manifest was written, or first seen in this boot
	ServedBy   string        // its container that has been ready; "": none
}

// Readiness is the answer of the probe, and since when it has been the same
// answer of the same process.
type Readiness struct {
	OK    bool
	Since time.Duration
	Why   string // of a refusal
}

// Containers is what the runtime shows of a workload's parents.
type Containers struct {
	Live  bool          // a container is created or running
	Gone  bool          // no sandbox, or the newest one is not ready: deleted
	New   bool          // no sandbox, but the API server has one that may stay: not made yet
	Twice bool          // ended twice within ten minutes
	Since time.Duration // since when Live has been what it is
}

// Parents is what the API server has of a workload's parents.
type Parents struct {
	// Changed: a snapshot of the newest parent differs from the newest generation.
	Changed bool
	// Refused says why no snapshot of the newest parent can be made; "" if one can.
	Refused string
	// Saved holds the UID of each parent whose snapshot equals the newest generation.
	Saved map[string]bool
}

// Dependency is what a workload needs to be well. One that is Known and does not
// answer explains each failure of that workload, for maxExcuse; one that nobody knows
// only makes it start later.
type Dependency struct {
	Name    string        // namespace/workload, or etcd
	Known   bool          // it is there to be watched on this node
	Answers bool          // it serves and is ready, both Known
	Since   time.Duration // since when Answers is what it is
}

// Tried is the memory that tells an action which works from one that does not.
type Tried struct {
	Key   string // of the action
	Count int    // how often it was carried out
	Last  time.Duration
	Err   string // of the last time
}

// next is the first that waits, Nobody if none does.
func (w World) next() Party {
	queue, _ := w.Queue.Value()
	if len(queue) == 0 {
		return Party{}
	}
	return queue[0]
}

// waits tells whether one of that role waits for its turn.
func (w World) waits(role Role) bool {
	queue, _ := w.Queue.Value()
	for _, party := range queue {
		if party.Role == role {
			return true
		}
	}
	return false
}

// active is the activation that has a manifest, nil if none or not known.
func (w World) active() *Active {
	active, _ := w.Active.Value()
	return active
}

// state is what the store remembers. Candidates that failed in an earlier boot get
// another chance in this one.
func (w World) state() store.State {
	record, _ := w.Record.Value()
	state := record.State
	if state.Activation == nil || state.Activation.BootID != w.Boot {
		state.Failures = 0
	}
	return state
}

// saved tells whether there is a generation, which also says how to ask who serves.
func (w World) saved() bool {
	record, _ := w.Record.Value()
	return len(record.Generations) > 0
}

// handoff is the one that is open, nil if none is. A reboot ends every handoff,
// since all who took part in it are gone.
func (w World) handoff() *store.Handoff {
	handoff := w.state().Handoff
	if handoff == nil || handoff.BootID != w.Boot {
		return nil
	}
	return handoff
}

// unseenContainer stands, in a generation's source, for a container that may have
// started before the payload was saved, as far as anybody can tell.
const unseenContainer = "unknown"

// age is for how long something has been so.
func (w World) age(since time.Duration) time.Duration { return w.Now - since }
