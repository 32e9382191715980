package store

import (
	"encoding/json"
	"io/fs"
	"maps"
	"slices"
	"time"
)

// Key names a workload.
type Key struct {
	Namespace string // a DNS-1123 label
	Workload  string // a DNS-1123 subdomain
}

// String returns namespace/workload.
func (k Key) String() string { return k.Namespace + "/" + k.Workload }

// File is one file of a volume.
type File struct {
	Path     string      // below the volume; may be nested, as in a Secret volume's items
	Data     []byte      // secret
	Mode     fs.FileMode // permission bits only
	UID, GID int         // from 0 on
}

// Volume is the payload of one volume of the pod.
type Volume struct {
	Name  string // a DNS-1123 label
	Files []File // in any order; empty gives an empty directory
	// Optional says that the source may be absent, so that Files may be empty for
	// that reason. The store keeps it alike.
	Optional bool
}

// Source says where a generation was taken from.
type Source struct {
	PodName     string `json:"podName"`
	PodUID      string `json:"podUID"`
	ContainerID string `json:"containerID,omitempty"`
	Node        string `json:"node"`
	NodeUID     string `json:"nodeUID,omitempty"`
}

// Draft is a generation before it has a number.
type Draft struct {
	Pod     json.RawMessage // sanitized, without identity
	Volumes []Volume
	Source  Source
}

// Generation is one immutable snapshot of a workload. It must not be changed.
type Generation struct {
	Seq      int64             // from 1 on, never used twice
	Pod      json.RawMessage   // sanitized, without identity; compact JSON
	Spec     string            // digest of Pod
	Payloads map[string]string // digests by volume name
	Source   Source
	Written  time.Time // wall clock, for people only
}

// Same says that the draft has this generation's pod and payloads: there is
// nothing to commit. Where it was taken from makes no difference.
func (g Generation) Same(d Draft) bool {
	pod, err := compact(d.Pod)
	if err != nil || digest(pod) != g.Spec || len(d.Volumes) != len(g.Payloads) {
		return false
	}
	for _, v := range d.Volumes {
		if has, ok := g.Payloads[v.Name]; !ok || has != digest(encode(v.Files)) {
			return false
		}
	}
	return true
}

// Activation is one time that a checkpoint is started.
type Activation struct {
	ID         string        `json:"id"` // 32 hex digits
	Generation int64         `json:"generation"`
	BootID     string        `json:"bootID"`
	At         time.Duration `json:"at"`                 // CLOCK_BOOTTIME of BootID
	ServedBy   string        `json:"servedBy,omitempty"` // its container that has been ready
}

// Handoff is an open one.
type Handoff struct {
	BootID      string        `json:"bootID"`
	At          time.Duration `json:"at"`                  // CLOCK_BOOTTIME of BootID
	Activation  string        `json:"activation"`          // the checkpoint that gives way
	ParentUID   string        `json:"parentUID"`           // of the parent's pod
	Container   string        `json:"container,omitempty"` // the parent's, once it was seen to hold the lock
	HeldAt      time.Duration `json:"heldAt,omitempty"`    // when it was first seen to
	RollingBack bool          `json:"rollingBack,omitempty"`
}

// State is what must survive a restart and can't be seen in the world. The zero
// value is that of a workload of which nothing is known but its generations.
type State struct {
	Number             uint64        `json:"number"` // grows by 1 with each SetState
	KnownGood          int64         `json:"knownGood,omitempty"`
	KnownGoodContainer string        `json:"knownGoodContainer,omitempty"` // evidence
	Activation         *Activation   `json:"activation,omitempty"`
	Failures           int           `json:"failures,omitempty"` // candidates given up since one served
	Handoff            *Handoff      `json:"handoff,omitempty"`
	Rollbacks          int           `json:"rollbacks,omitempty"` // handoffs that failed since one was verified
	RetryAt            time.Duration `json:"retryAt,omitempty"`   // CLOCK_BOOTTIME of RetryBoot; no handoff before
	RetryBoot          string        `json:"retryBoot,omitempty"`
	FailedParent       string        `json:"failedParent,omitempty"` // pod UID whose handoff failed last
}

// clone returns a state that shares nothing.
func (s State) clone() State {
	if s.Activation != nil {
		a := *s.Activation
		s.Activation = &a
	}
	if s.Handoff != nil {
		h := *s.Handoff
		s.Handoff = &h
	}
	return s
}

// Node is the identity of the node to which the store belongs. The zero value is
// that of a node on which nothing was stored.
type Node struct {
	Format          int    `json:"-"` // of node.json; SetNode writes the newest
	Name            string `json:"name"`
	NodeUID         string `json:"nodeUID,omitempty"`
	MachineID       string `json:"machineID,omitempty"`
	KubeSystemUID   string `json:"kubeSystemUID,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"` // the highest that was seen
	NodeIP          string `json:"nodeIP,omitempty"`
}

// Workload is all that the store knows of one.
type Workload struct {
	Key         Key
	Generations []Generation // newest first; each was found whole
	State       State
	Problems    []string // files that were found bad, and where they are now
}

// workload is a Workload in the making.
type workload struct {
	Workload
	last int64 // highest number that any file ever had
	// stateLost says that no state says which generation is known-good because
	// the file that did was bad.
	stateLost bool
	aside     map[string]bool // names in quarantine
}

func (w *workload) snapshot() Workload {
	c := w.Workload
	c.Generations, c.Problems = slices.Clone(c.Generations), slices.Clone(c.Problems)
	c.State = c.State.clone()
	return c
}

func (w *workload) generation(seq int64) (Generation, bool) {
	for _, g := range w.Generations {
		if g.Seq == seq {
			return g, true
		}
	}
	return Generation{}, false
}

// payloads returns the digests, always in the same order.
func (g Generation) payloads() []string { return slices.Sorted(maps.Values(g.Payloads)) }
