package checkpoint

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
)

const (
	// inMotion is the beat while a workload is on its way from one state to
	// another: the lock table is read so often.
	inMotion = 100 * time.Millisecond
	// tidyAfter is how often what nothing needs any more is removed.
	tidyAfter = time.Minute
	// frozenFor is how long a source may be silent unheard: a new holder has not
	// been asked for its readiness yet.
	frozenFor = 2 * time.Second
)

// Parts are what a Loop runs on. All must be set but NewID and Log.
type Parts struct {
	Clock     Clock
	Sources   Sources
	Effects   Effects
	Store     *store.Store
	Manifests *kubelet.Manifests
	Held      func() bool // whether this copy has the writer's lock; nil: it has
	// Credentials are those of the static copy, where they stand; nil: nobody keeps them.
	Credentials func() *Credentials
	NewID       func() string // nil: random
	Log         *slog.Logger  // nil: silent
}

// Loop observes, decides and applies, pass after pass. One goroutine runs it;
// Status may be read by any.
type Loop struct {
	config   Config
	clock    Clock
	sources  Sources
	store    *store.Store
	held     func() bool
	log      *slog.Logger
	observer observer
	applier  applier
	leader   Self   // as it was said
	next     string // the copy that is to lead next; "": this one goes on

	last   map[store.Key]*memory
	events []Event
	tidied time.Duration
	calm   bool // nothing that the last pass saw has anything ahead of it
	copy   ownCopy
	kept   func() *Credentials
	status atomic.Pointer[Status]
}

// memory is what the loop keeps of a workload from pass to pass: what it said,
// so that it says only what changed, and what it tried.
type memory struct {
	state      State
	since      time.Duration
	holder     string
	next       string
	ready      string
	awaited    string
	frozen     string // sources whose silence is waited for; since when; whether it was said
	frozenAt   time.Duration
	frozenSaid bool
	tried      Tried
	failed     string // the last action's error
}

// New makes a Loop; nothing happens before its first Pass.
func New(c Config, p Parts) *Loop {
	if p.NewID == nil {
		p.NewID = randomID
	}
	if p.Held == nil {
		p.Held = func() bool { return true }
	}
	if p.Credentials == nil {
		p.Credentials = func() *Credentials { return nil }
	}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	l := &Loop{
		config: c, clock: p.Clock, sources: p.Sources, store: p.Store, held: p.Held, kept: p.Credentials, log: p.Log,
		last: map[store.Key]*memory{},
		observer: observer{
			config: c, clock: p.Clock, sources: p.Sources, store: p.Store, manifests: p.Manifests,
			watch: newWatch(), facts: map[factKey]facts{}, content: map[store.Key]contents{},
		},
		applier: applier{
			config: c, clock: p.Clock, sources: p.Sources, effects: p.Effects, store: p.Store,
			manifests: p.Manifests, newID: p.NewID,
		},
	}
	l.applier.note = l.note
	return l
}

func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand
	return hex.EncodeToString(b[:])
}

// Run makes passes until ctx ends, one a beat, and one at once when wake says
// that something happened. After a pass that finds that another copy of the daemon
// is to lead it returns [ErrYield].
func (l *Loop) Run(ctx context.Context, wake <-chan struct{}) error {
	l.prime()
	for ctx.Err() == nil {
		beat := l.config.Poll
		switch {
		case l.Pass(ctx):
			beat = min(beat, inMotion)
		case l.calm:
			beat += calmBeat(beat) // the runtime's answer comes sooner
		}
		switch {
		case l.next != "":
			return fmt.Errorf("%w: %s", ErrYield, l.next)
		case !l.held():
			return fmt.Errorf("%w: the file of the writer's lock in %s was removed or replaced", ErrYield, l.config.StateDir)
		}
		timer := time.NewTimer(beat)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-wake:
		}
		timer.Stop()
	}
	return nil
}

// prime asks the sources what the first pass would like to know. A start that is
// due does not wait for it, but it may spare it a generation whose image is gone.
func (l *Loop) prime() {
	wants := Wants{Hurry: true, Probes: map[store.Key]Question{}}
	s := l.observer.observe()
	for _, w := range s.worlds {
		l.ask(&wants, w, s.details[w.Workload])
	}
	l.sources.Want(wants)
}

// Pass observes, decides and applies once. It tells whether something is in
// motion, so that the next pass should follow soon.
func (l *Loop) Pass(ctx context.Context) (motion bool) {
	s := l.observer.observe()
	wants := Wants{Probes: map[store.Key]Question{}}
	status := l.begin(s)
	l.calm = true
	for _, w := range s.worlds {
		m := l.remember(w.Workload)
		w.Tried = m.tried
		d := Decide(w, l.config.limits())
		l.say(m, w, d)
		if ctx.Err() == nil { // told to stop: start, stop and remove nothing
			l.act(ctx, m, w, s.details[w.Workload], d)
		}
		motion = motion || moving(d, w)
		l.calm = l.calm && d.State == Protected && calm(w)
		l.ask(&wants, w, s.details[w.Workload])
		status.add(w, d, *m, s.details[w.Workload])
	}
	l.tellExpiry(status)
	wants.Errands = l.observer.errands()
	l.arbitrate(s, status)
	l.identify(s)
	l.keepCopy(ctx, s, status)
	wants.Account = s.account()
	if own, _ := s.own(); own != nil {
		wants.CopyImages = copyImages(own)
	}
	l.tellCredentials(status)
	l.tidy(ctx, s, motion)
	wants.Hurry = motion
	l.sources.Want(wants)
	status.Events = l.events
	l.status.Store(status)
	return motion
}

// Status is what the last pass saw and decided; nil before the first one. It is
// not changed any more.
func (l *Loop) Status() *Status { return l.status.Load() }

// moving tells whether the next pass should follow soon: not where a workload may
// stay for days.
func moving(d Decision, w World) bool {
	switch d.State {
	case Unprotected, Unprotectable, Protected, Stuck:
		return d.Action != nil
	case Serving:
		return d.Action != nil || handoffWaits(w) == ""
	case Pending:
		return d.Action != nil || len(candidates(w)) > 0
	case Activating, Failing, HandingOff, RollingBack:
	}
	return true
}

func (l *Loop) remember(key store.Key) *memory {
	m, ok := l.last[key]
	if !ok {
		m = &memory{}
		l.last[key] = m
	}
	return m
}

// act applies the decision's action, and keeps count of one that is repeated.
func (l *Loop) act(ctx context.Context, m *memory, w World, details details, d Decision) {
	if d.Action == nil {
		if m.tried.Key != "" && w.Now-m.tried.Last > stuckBeat {
			m.tried, m.failed = Tried{}, ""
		}
		return
	}
	if key := d.Action.key(); key != m.tried.Key {
		m.tried = Tried{Key: key}
	}
	m.tried.Count++
	m.tried.Last = w.Now
	if l.config.DryRun {
		l.log.Info("would act", "pod", w.Workload.String(), "op", m.tried.Key, "why", d.Why)
		return
	}
	err := l.applier.apply(ctx, w, details, d.Action)
	m.tried.Err, m.failed = "", ""
	if err != nil {
		m.tried.Err, m.failed = err.Error(), err.Error()
		l.log.Error("action failed", "pod", w.Workload.String(), "op", m.tried.Key, "why", d.Why, "err", err)
	}
}

// say logs what changed since the last pass; a quiet pass is silent.
func (l *Loop) say(m *memory, w World, d Decision) {
	if d.State != m.state {
		l.note(w, "state "+string(d.State), "from", string(m.state), "why", d.Why)
		m.state, m.since = d.State, w.Now
	}
	if frozen := fmt.Sprint(d.Frozen); frozen != m.frozen {
		m.frozen, m.frozenAt, m.frozenSaid = frozen, w.Now, len(d.Frozen) == 0
	}
	if !m.frozenSaid && w.age(m.frozenAt) >= frozenFor {
		l.log.Warn("frozen", "pod", w.Workload.String(), "op", d.Frozen, "why", d.Why)
		m.frozenSaid = true
	}
	if awaited := strings.Join(d.WaitingForDependencies, ","); awaited != m.awaited {
		if awaited != "" {
			l.note(w, "waits for dependencies", "after", awaited)
		}
		m.awaited = awaited
	}
	if serves, ok := w.Serves.Value(); ok && serves.ID != m.holder {
		l.note(w, "held by "+serves.Role.String(), "container", serves.ID)
		m.holder = serves.ID
	}
	if next := w.next(); next.ID != m.next {
		if next.Role != Nobody {
			l.note(w, next.Role.String()+" first in line", "container", next.ID)
		}
		m.next = next.ID
	}
	ready := ""
	if r, ok := w.Ready.Value(); ok {
		ready = map[bool]string{true: "ready", false: "not ready"}[r.OK]
		serves, _ := w.Serves.Value()
		ready = serves.Role.String() + " " + ready
	}
	if ready != "" && ready != m.ready {
		l.note(w, ready)
		m.ready = ready
	}
}

// note tells log and status that something happened.
func (l *Loop) note(w World, what string, words ...any) {
	l.log.Info(what, append([]any{"pod", w.Workload.String()}, words...)...)
	l.happened(w.Workload.String(), what)
}

func (l *Loop) happened(to, what string) {
	l.events = append(l.events, Event{At: time.Now(), Workload: to, What: what})
	if over := len(l.events) - maxEvents; over > 0 {
		l.events = append([]Event(nil), l.events[over:]...)
	}
}

// ask adds what this workload wants to be asked for the next pass.
func (l *Loop) ask(wants *Wants, w World, d details) {
	record, _ := w.Record.Value()
	for _, g := range record.Generations {
		facts := l.observer.read(w.Workload, g)
		wants.Images = append(wants.Images, facts.Images...)
		if facts.Data.Path != "" {
			d.data = append(d.data, facts.Data.Path)
		}
	}
	wants.Data = slices.Compact(slices.Sorted(slices.Values(append(wants.Data, d.data...))))
	serves, ok := w.Serves.Value()
	if ok && serves.Role != Nobody && d.facts.Ready != nil {
		wants.Probes[w.Workload] = Question{Probe: *d.facts.Ready, Holder: serves.ID, Calm: calm(w)}
	}
	wants.Processes = slices.AppendSeq(wants.Processes, maps.Values(d.processes))
}

// calm: a parent that serves, is ready and has proved its generation has nothing ahead
// of it but what the sources tell of by themselves.
func calm(w World) bool {
	record, _ := w.Record.Value()
	serves, _ := w.Serves.Value()
	ready, known := w.Ready.Value()
	return serves.Role == Parent && known && ready.OK && w.active() == nil &&
		record.State.Rollbacks == 0 && len(record.Generations) > 0 && proved(w, serves)
}

// tidy removes activations that no manifest names and no container uses, and
// generations that are too old. It waits for a quiet moment and for a runtime
// that answers.
func (l *Loop) tidy(ctx context.Context, s *sight, motion bool) {
	pods, known := s.pods.Value()
	if motion || !known || !s.listed() || l.config.DryRun || ctx.Err() != nil || (l.tidied != 0 && s.at-l.tidied < tidyAfter) {
		return
	}
	l.tidied = s.at
	named := used(s, pods)
	if err := l.store.Prune(func(activation string) bool { return named[activation] }); err != nil {
		l.log.Warn("prune", "err", err)
	}
}

// listed tells whether all our manifests are known.
func (s *sight) listed() bool {
	for _, w := range s.worlds {
		if _, known := w.Active.Value(); !known {
			return false
		}
	}
	_, known := s.listing.Value()
	return known
}

// used are the activations that a manifest or a container still names.
func used(s *sight, pods []cri.Pod) map[string]bool {
	used := map[string]bool{}
	for _, m := range s.manifests {
		used[m.Activation] = true
	}
	for _, pod := range pods {
		if len(pod.Containers) > 0 || pod.Ready() {
			used[pod.Annotation(activationKey)] = true
		}
	}
	return used
}
