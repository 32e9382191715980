package checkpoint

import (
	"fmt"
	"strings"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

const maxEvents = 200

// Status is what /status serves: this node as the last pass saw it.
type Status struct {
	Node      string           `json:"node"`
	Boot      string           `json:"boot"`
	At        time.Time        `json:"at"`
	DryRun    bool             `json:"dryRun,omitempty"`
	Leader    string           `json:"leader,omitempty"`  // the pod of this copy of the daemon
	Waiting   []string         `json:"waiting,omitempty"` // those of the other ones
	Sources   []SourceStatus   `json:"sources"`
	Workloads []WorkloadStatus `json:"workloads"`
	// StaticCopy is where the daemon's own manifest stands; "": this daemon keeps none.
	StaticCopy  string       `json:"staticCopy,omitempty"`
	Credentials *Credentials `json:"credentials,omitempty"` // with which it asks the API server
	Problems    []string     `json:"problems,omitempty"`
	Events      []Event      `json:"events,omitempty"`
}

// SourceStatus tells whether a source is Known, and why not.
type SourceStatus struct {
	Name  string `json:"name"`
	Known bool   `json:"known"`
	Why   string `json:"why,omitempty"`
}

// WorkloadStatus is where one workload stands.
type WorkloadStatus struct {
	Workload   string   `json:"workload"`
	State      State    `json:"state"`
	For        string   `json:"for"` // how long it has been in that state
	Why        string   `json:"why"`
	Frozen     []string `json:"frozen,omitempty"`
	Waiting    []string `json:"waitingForDependencies,omitempty"`
	Holder     string   `json:"holder,omitempty"` // role and container of who serves
	Next       string   `json:"next,omitempty"`   // of the first that waits
	Ready      string   `json:"ready,omitempty"`
	Lock       string   `json:"lock,omitempty"`
	Generation int64    `json:"generation,omitempty"` // the newest
	Saved      string   `json:"saved,omitempty"`      // when
	KnownGood  int64    `json:"knownGood,omitempty"`
	Activation string   `json:"activation,omitempty"` // that has a manifest
	Activated  int64    `json:"activated,omitempty"`  // the generation that it was started with
	Files      int64    `json:"files,omitempty"`      // the generation that its files are of now
	Upcoming   string   `json:"upcoming,omitempty"`   // where there is a newer one, when that counts, and why
	// What ends first of the newest generation's credentials.
	Token       *Expiry  `json:"token,omitempty"`
	Certificate *Expiry  `json:"certificate,omitempty"`
	Findings    []string `json:"findings,omitempty"`
	Error       string   `json:"error,omitempty"` // of the last action
}

// Event is one thing that happened.
type Event struct {
	At       time.Time `json:"at"`
	Workload string    `json:"workload"`
	What     string    `json:"what"`
}

// begin is a Status with all that does not belong to one workload.
func (l *Loop) begin(s *sight) *Status {
	status := &Status{Node: l.config.Node, Boot: l.clock.Boot(), At: time.Now(), DryRun: l.config.DryRun}
	status.Sources = []SourceStatus{
		source("runtime", s.pods), source("kubelet", s.kubelet), source("api", s.api), source("manifests", s.listing),
	}
	status.Problems = append(status.Problems, l.store.Problems()...)
	listing, _ := s.listing.Value()
	for _, problem := range listing.Problems {
		status.Problems = append(status.Problems, problem.String())
	}
	if parents, ok := s.api.Value(); ok {
		status.Problems = append(status.Problems, parents.strays...)
	}
	if outside := l.sources.Outside(); outside.Err == nil {
		status.Problems = append(status.Problems, inVain(outside.Value)...)
	}
	for _, w := range l.store.Workloads() {
		for _, problem := range w.Problems {
			status.Problems = append(status.Problems, w.Key.String()+": "+problem)
		}
	}
	return status
}

func source[T any](name string, o Observed[T]) SourceStatus {
	why, known := told(o)
	return SourceStatus{Name: name, Known: known, Why: why}
}

// add tells where one workload stands.
func (s *Status) add(w World, d Decision, m memory, details details) {
	out := WorkloadStatus{
		Workload: w.Workload.String(), State: d.State, Why: d.Why, Frozen: d.Frozen, Waiting: d.WaitingForDependencies,
		For:      (w.Now - m.since).Round(time.Second).String(),
		Findings: details.findings, Error: m.failed,
	}
	if details.facts.Lock != nil {
		out.Lock = details.facts.Lock.Path
	}
	if serves, ok := w.Serves.Value(); ok && serves.Role != Nobody {
		out.Holder = serves.Role.String() + " " + serves.ID
	}
	if next := w.next(); next.Role != Nobody {
		out.Next = next.Role.String() + " " + next.ID
	}
	if ready, ok := w.Ready.Value(); ok {
		out.Ready = fmt.Sprintf("%t for %s", ready.OK, w.age(ready.Since).Round(time.Second))
	}
	if active := w.active(); active != nil {
		out.Activation, out.Activated, out.Files = active.ID, active.Generation, active.Files
	}
	out.Upcoming = upcoming(w)
	out.stored(w)
	s.Workloads = append(s.Workloads, out)
}

func (s *WorkloadStatus) stored(w World) {
	record, _ := w.Record.Value()
	s.KnownGood = record.State.KnownGood
	if len(record.Generations) > 0 {
		newest := record.Generations[0]
		s.Generation, s.Saved = newest.Seq, newest.Written.UTC().Format(time.RFC3339)
	}
}

// tellExpiry tells which credentials end first, and which are about to. No start
// depends on it, so that it is found out when the actions of the pass are done.
func (l *Loop) tellExpiry(s *Status) {
	for i := range s.Workloads {
		w := &s.Workloads[i]
		namespace, workload, _ := strings.Cut(w.Workload, "/")
		c := l.observer.contents(store.Key{Namespace: namespace, Workload: workload})
		w.Token, w.Certificate = c.token, c.certificate
		w.Findings = append(w.Findings, c.expiring(time.Now())...)
	}
}
