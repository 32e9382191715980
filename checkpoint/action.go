package checkpoint

import (
	"fmt"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// Action is one step that apply carries out. Each may be repeated without harm.
type Action interface {
	// needs names the sources that must be Known before it is done.
	needs(locked bool) []string
	// key tells one action from another, so that a repetition is seen.
	key() string
	// patience is how long the world may take to show the effect.
	patience() time.Duration
}

type (
	// Snapshot commits the newest parent as the generation that follows After.
	Snapshot struct{ After int64 }

	// Refresh gives the checkpoint of Activation, which runs on, the files of
	// Generation.
	Refresh struct {
		Activation string
		Generation int64
	}

	// Start writes the manifest of a new activation of Generation, over that
	// of an older one if there is one.
	Start struct {
		Generation int64
		Remember   store.State
	}

	// HandOver removes the manifest and ends the holder at once if the parent
	// is first in line; if it no longer is, a new activation is written. With
	// a zero Holder there is nobody of ours to end: the parent serves already.
	HandOver struct {
		Holder, Parent Party
		Grace          time.Duration
		Remember       store.State
		Generation     int64       // to start again if the parent is gone
		Gone           store.State // and to remember then
	}

	// End ends a checkpoint's process whose manifest is gone.
	End struct {
		Party Party
		Grace time.Duration
	}

	// StopParent stops the parent's container through the runtime; the kubelet
	// starts it again, behind the checkpoint.
	StopParent struct {
		Parent Party
		Grace  time.Duration
	}

	// Remember stores what the world can't tell.
	Remember struct {
		State store.State
		What  string
	}
)

func (Snapshot) needs(bool) []string { return []string{"api", "store"} }
func (Refresh) needs(bool) []string  { return []string{"store"} }
func (Start) needs(locked bool) []string {
	if locked {
		return []string{"store", "manifests", "lock"}
	}
	return []string{"store", "manifests", "runtime"}
}
func (a HandOver) needs(bool) []string {
	if a.Holder.Role == Nobody {
		return []string{"store", "manifests", "lock", "runtime"}
	}
	return []string{"store", "manifests", "lock", "runtime", "kubelet"}
}
func (End) needs(bool) []string        { return []string{"lock", "runtime", "manifests"} }
func (StopParent) needs(bool) []string { return []string{"lock", "runtime", "readiness"} }
func (Remember) needs(bool) []string   { return []string{"store"} }

func (a Snapshot) key() string   { return fmt.Sprintf("snapshot after generation %d", a.After) }
func (a Refresh) key() string    { return fmt.Sprintf("refresh to generation %d", a.Generation) }
func (a Start) key() string      { return fmt.Sprintf("start generation %d", a.Generation) }
func (a HandOver) key() string   { return "hand over to " + a.Parent.ID }
func (a End) key() string        { return "end " + a.Party.ID }
func (a StopParent) key() string { return "stop " + a.Parent.ID }
func (a Remember) key() string   { return "remember " + a.What }

func (Snapshot) patience() time.Duration     { return time.Second }
func (Refresh) patience() time.Duration      { return time.Second }
func (Start) patience() time.Duration        { return time.Second }
func (HandOver) patience() time.Duration     { return time.Second }
func (a End) patience() time.Duration        { return a.Grace + 2*time.Second }
func (a StopParent) patience() time.Duration { return a.Grace + 5*time.Second }
func (Remember) patience() time.Duration     { return time.Second }
