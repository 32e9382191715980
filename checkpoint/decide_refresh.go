package checkpoint

import (
	"fmt"
	"slices"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// meanwhile is what is due while a checkpoint serves, which may be for days, and has
// nothing else ahead of it: what has changed is saved, and what a kubelet would give a
// running pod of that, the checkpoint gets. Neither restarts it.
func meanwhile(d Decision, w World, holder Party) Decision {
	if d.State != Serving || d.Action != nil || len(d.Frozen) > 0 {
		return d
	}
	if parents, told := w.API.Value(); told && parents.Changed {
		d.Action = snapshotAfter(w)
		d.Why += " generation=outdated"
		return d
	}
	if g, ok := fresher(w); ok && holder.Role == Checkpoint {
		d.Action = Refresh{Activation: w.active().ID, Generation: g.Seq}
		d.Why += fmt.Sprintf(" files=%d newer=%d", w.active().Files, g.Seq)
	}
	return d
}

// fresher is the newest generation that differs from the files of the checkpoint in
// nothing but volumes which a kubelet refreshes.
func fresher(w World) (store.Generation, bool) {
	record, _ := w.Record.Value()
	files, ok := mounted(w)
	if !ok {
		return store.Generation{}, false
	}
	for _, g := range record.Generations { // newest first
		if g.Seq > files.Seq && w.Unusable[g.Seq] == "" && differs(files, g, w.active().Fixed) == "" {
			return g, true
		}
	}
	return store.Generation{}, false
}

// mounted is the generation of which the files of the active checkpoint are.
func mounted(w World) (store.Generation, bool) {
	active := w.active()
	if active == nil || w.Unusable[active.Files] != "" {
		return store.Generation{}, false
	}
	record, _ := w.Record.Value()
	return find(record, active.Files)
}

// differs says what keeps the files of one generation from a checkpoint that runs with
// those of another one; "": nothing.
func differs(files, g store.Generation, fixed []string) string {
	if g.Spec != files.Spec {
		return "its pod is another one"
	}
	i := slices.IndexFunc(fixed, func(volume string) bool { return g.Payloads[volume] != files.Payloads[volume] })
	if i >= 0 {
		return fmt.Sprintf("its volume %s is another one, which containers read once", fixed[i])
	}
	return ""
}

// upcoming says when the newest generation counts, and why, where the active checkpoint
// does not have its files; "": it has them, or there is no checkpoint.
func upcoming(w World) string {
	active := w.active()
	if active == nil || !w.saved() {
		return ""
	}
	newest, why := newest(w), ""
	files, known := mounted(w)
	switch {
	case newest.Seq == active.Files, active.Files == 0 && newest.Seq == active.Generation:
		return ""
	case !known:
		why = "nobody can tell what the checkpoint has mounted"
	default:
		why = differs(files, newest, active.Fixed)
	}
	if why == "" {
		return fmt.Sprintf("the files of generation %d follow when the checkpoint serves", newest.Seq)
	}
	return fmt.Sprintf("generation %d counts from the next start: %s", newest.Seq, why)
}
