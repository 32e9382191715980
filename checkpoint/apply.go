package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// applier carries out one action at a time. It decides nothing but what the
// action itself says, and leaves the old state standing when it fails.
type applier struct {
	config    Config
	clock     Clock
	sources   Sources
	effects   Effects
	store     *store.Store
	manifests *kubelet.Manifests
	newID     func() string // 32 hex digits, never the same
	note      func(w World, what string, words ...any)
}

// apply carries out an action on a workload.
func (a *applier) apply(ctx context.Context, w World, d details, action Action) error {
	switch action := action.(type) {
	case Snapshot:
		return a.snapshot(w, d)
	case Refresh:
		return a.refresh(w, action)
	case Start:
		return a.start(w, action.Generation, action.Remember)
	case HandOver:
		return a.handOver(ctx, w, d, action)
	case End:
		return a.end(ctx, d, action)
	case StopParent:
		a.note(w, "parent stopped", "container", action.Parent.ID)
		return a.effects.StopContainer(ctx, action.Parent.ID, action.Grace)
	case Remember:
		if _, err := a.store.SetState(w.Workload, action.State); err != nil {
			return err
		}
		a.note(w, action.What)
		return nil
	}
	return fmt.Errorf("apply %T: no such action", action)
}

// snapshot commits the newest parent as a generation.
func (a *applier) snapshot(w World, d details) error {
	if d.draft == nil {
		return errors.New("snapshot: no parent was seen")
	}
	seq, err := a.store.Commit(w.Workload, *d.draft)
	if err != nil {
		return err
	}
	a.note(w, "generation committed", "generation", seq, "of", d.draft.Source.PodName)
	return nil
}

// refresh lets the checkpoint have newer files. What it was started with stays in the
// state and in its manifest, which is not touched.
func (a *applier) refresh(w World, action Refresh) error {
	if err := a.store.Refresh(w.Workload, action.Generation, action.Activation); err != nil {
		return err
	}
	a.note(w, "files refreshed", "generation", action.Generation, "activation", action.Activation)
	return nil
}

// start writes a new activation: what it is goes to disk first, then all that
// it mounts, and last, by one rename, the manifest that the kubelet reads.
func (a *applier) start(w World, seq int64, next store.State) error {
	record, _ := a.store.Workload(w.Workload)
	next.Number = record.State.Number
	id := a.newID()
	next.Activation = &store.Activation{ID: id, Generation: seq, BootID: a.clock.Boot(), At: a.clock.Now()}
	generation, ok := find(record, seq)
	if !ok {
		return fmt.Errorf("start %s: generation %d is not in the store", w.Workload, seq)
	}
	pod, err := snapshot.Decode(generation.Pod)
	if err != nil {
		return fmt.Errorf("start %s generation %d: %w", w.Workload, seq, err)
	}
	points, err := snapshot.MountPoints(pod)
	if err != nil {
		return fmt.Errorf("start %s generation %d: %w", w.Workload, seq, err)
	}
	if _, err := a.store.SetState(w.Workload, next); err != nil {
		return err
	}
	volumes, err := a.store.Stage(w.Workload, seq, id, points)
	if err != nil {
		return err
	}
	data, err := snapshot.Manifest(pod, id, a.config.Node, seq, volumes)
	if err != nil {
		return fmt.Errorf("start %s generation %d: %w", w.Workload, seq, err)
	}
	if err := a.manifests.Write(kubelet.File(w.Workload.Namespace, w.Workload.Workload), data); err != nil {
		return err
	}
	a.note(w, "manifest written", "generation", seq, "activation", id)
	return nil
}

// handOver tells the checkpoint to go. The kubelet sees the removal within a
// tenth of a second and sends a SIGTERM of its own, so the lock table is read
// again and the holder ended before that, or the manifest is written back.
func (a *applier) handOver(ctx context.Context, w World, d details, action HandOver) error {
	if _, err := a.store.SetState(w.Workload, action.Remember); err != nil {
		return err
	}
	if err := a.manifests.Remove(kubelet.File(w.Workload.Namespace, w.Workload.Workload)); err != nil {
		return err
	}
	a.note(w, "checkpoint told to go", "parent", action.Parent.ID)
	if action.Holder.Role == Nobody {
		return nil
	}
	if w.Locked {
		again, err := a.sources.Lock(d.facts.Lock.Path)
		if err != nil {
			return fmt.Errorf("hand over %s: %w", w.Workload, err)
		}
		parent := d.processes[action.Parent.ID]
		if again.Holder != nil && *again.Holder == parent {
			return nil // the kubelet was sooner, and what it ended did not linger
		}
		if len(again.Waiters) == 0 || again.Waiters[0] != parent {
			a.note(w, "parent is no longer first in line")
			return a.start(w, action.Generation, action.Gone)
		}
	}
	return a.end(ctx, d, End{Party: action.Holder, Grace: action.Grace})
}

// end ends a checkpoint: its process where the lock table shows it, else its
// container.
func (a *applier) end(ctx context.Context, d details, action End) error {
	if process, ok := d.processes[action.Party.ID]; ok {
		return a.effects.EndProcess(ctx, process, action.Grace)
	}
	return a.effects.StopContainer(ctx, action.Party.ID, action.Grace)
}

func find(record store.Workload, seq int64) (store.Generation, bool) {
	for _, g := range record.Generations {
		if g.Seq == seq {
			return g, true
		}
	}
	return store.Generation{}, false
}
