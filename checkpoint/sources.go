package checkpoint

import (
	"context"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/data"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// Answer is the newest that a source said: a value or an error, and when.
type Answer[T any] struct {
	Value T
	Err   error
	At    time.Duration // CLOCK_BOOTTIME; 0: never asked
}

// Clock tells the time of this boot.
type Clock interface {
	Now() time.Duration // CLOCK_BOOTTIME
	Boot() string       // /proc/sys/kernel/random/boot_id
}

// Sources are what the observe step asks. No method blocks: a source that is
// slow is asked in the background and answers with what it said last.
type Sources interface {
	Pods() Answer[[]cri.Pod]
	Images() Answer[map[string]Image] // those that Want names
	Kubelet() Answer[kubelet.View]
	API() Answer[*api.View]
	Outside() Answer[[]string] // pods that ask to be protected in none of --namespaces
	Lock(path string) (lock.State, error)
	// Data is what is in a directory that Want names.
	Data(dir string) Answer[data.Fingerprint]
	LockExec() error // why lock-exec can't be run from --bin-dir; nil: it can
	// Ready is what the probe of a workload said when the holder was the one named.
	Ready(workload store.Key, holder string) Answer[bool]
	// Token, Entrypoint and Certificate answer to errands.
	Token(TokenWant) Answer[api.Token]
	Entrypoint(image string) Answer[*snapshot.Image] // nil: the runtime does not tell
	Certificate(Trust) Answer[string]                // why it is not accepted; "": it is
	// Want tells the background what the last pass is interested in.
	Want(Wants)
}

// Wants is what a pass wants to be asked for the next one.
type Wants struct {
	Hurry  bool     // something is in motion
	Images []string // of the generations
	// CopyImages are those of the daemon's static copy.
	CopyImages []string
	Data       []string // directories of the host
	Probes     map[store.Key]Question
	// Processes are those whose end ought to be heard of at once.
	Processes []lock.Process
	Errands   Errands
	// Account is the one whose credentials are to be kept on disk; nil: none.
	Account *Account
}

// Question is a readiness probe, and who holds the lock while it is asked.
type Question struct {
	Probe  snapshot.Probe
	Holder string
	Calm   bool // no decision hangs on the answer
}

// Effects are the two things that apply does to running processes. Without a grace
// EndProcess returns when the process is gone; else both return when the order is
// given, not when it is carried out. Giving it again changes nothing.
type Effects interface {
	EndProcess(ctx context.Context, p lock.Process, grace time.Duration) error
	StopContainer(ctx context.Context, id string, grace time.Duration) error
}
