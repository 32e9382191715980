package checkpoint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// An answer that is older than this is none.
const (
	podsAge    = 8 * time.Second
	kubeletAge = kubeletRest + 5*time.Second
	apiAge     = 90 * time.Second // a watch gives a sign of life twice a minute
	readyAge   = probeCalm + 10*time.Second
	imagesAge  = imagesRest + 30*time.Second
	// servedLong proves readiness where there is no probe to ask.
	servedLong = 10 * time.Second
)

// observer turns answers into worlds: here, and nowhere else, an error, a stale
// answer or an empty list without a witness becomes Unknown.
type observer struct {
	config    Config
	clock     Clock
	sources   Sources
	store     *store.Store
	manifests *kubelet.Manifests
	watch     *watch
	drawn     *parentsByWorkload
	facts     map[factKey]facts
	content   map[store.Key]contents
}

// sight is what one pass saw: a World for each workload, and what apply needs
// to act on the parties that the worlds name.
type sight struct {
	at        time.Duration
	worlds    []World
	details   map[store.Key]details
	pods      Observed[[]cri.Pod]
	kubelet   Observed[kubelet.View]
	api       Observed[*parentsByWorkload]
	listing   Observed[kubelet.Listing]
	manifests map[store.Key]kubelet.Manifest
	unclear   map[store.Key]string // why nobody knows which manifest there is
	self      instance             // this copy of the daemon
	waiting   []instance           // the other ones, in the order of their turn
}

// details of a workload that Decide does not need.
type details struct {
	facts     facts
	draft     *store.Draft
	processes map[string]lock.Process // by Party.ID
	findings  []string
	data      []string // directories that a parent names
}

// facts are what a generation's pod says beside its spec.
type facts struct {
	snapshot.Facts
	identity snapshot.Identity
	err      error // the pod can't be read
}

type factKey struct {
	key store.Key
	seq int64
}

// observe looks once at everything.
func (o *observer) observe() *sight {
	now := o.clock.Now()
	o.watch.begin(now)
	s := &sight{at: now, details: map[store.Key]details{}, manifests: map[store.Key]kubelet.Manifest{}, unclear: map[store.Key]string{}}
	s.pods = current(now, o.sources.Pods(), max(podsAge, 3*o.config.Poll), "runtime")
	if pods, ok := s.pods.Value(); ok && len(pods) == 0 {
		s.pods = Unknown[[]cri.Pod]("runtime: lists no pod at all, not even this one")
	}
	s.kubelet = current(now, o.sources.Kubelet(), kubeletAge, "kubelet")
	o.lead(s)
	s.listing = from(o.manifests.List())
	if listing, ok := s.listing.Value(); ok {
		s.file(listing)
	}
	s.api = o.snapshots(o.known(current(now, o.sources.API(), apiAge, "api")), s.pods)
	var pods []placed
	for _, key := range o.keys(s) {
		w, p := o.world(s, key)
		s.worlds, pods = append(s.worlds, w), append(pods, p)
	}
	o.depend(s)
	for i := range s.worlds {
		o.count(&s.worlds[i], pods[i])
	}
	o.forget()
	return s
}

// file sorts our manifests by workload. A second one of the same workload is
// somebody's copy: to take one of the two away would leave the other.
func (s *sight) file(listing kubelet.Listing) {
	for _, m := range listing.Ours {
		key := store.Key{Namespace: m.Namespace, Workload: m.Workload}
		if m.File == kubelet.File(m.Namespace, m.Workload) {
			s.manifests[key] = m
			continue
		}
		s.unclear[key] = fmt.Sprintf("manifests: %s is a copy of a manifest of %s: move it out of the directory", m.File, key)
	}
}

// current is the answer of a source as an observation.
func current[T any](now time.Duration, a Answer[T], limit time.Duration, source string) Observed[T] {
	switch {
	case a.At == 0 && a.Err == nil:
		return Unknown[T]("%s: has not answered yet", source)
	case a.Err != nil:
		return Unknown[T]("%s", a.Err)
	case now-a.At > limit:
		return Unknown[T]("%s: has not answered for %s", source, (now - a.At).Round(time.Second))
	}
	return Known(a.Value)
}

// keys are the workloads on disk, those that the API server has, and those of
// which only a manifest is left, in a stable order.
func (o *observer) keys(s *sight) []store.Key {
	set := map[store.Key]bool{}
	for _, w := range o.store.Workloads() {
		set[w.Key] = true
	}
	if parents, ok := s.api.Value(); ok {
		for key := range parents.workloads {
			set[key] = true
		}
	}
	for key := range s.manifests {
		set[key] = true
	}
	for key := range s.unclear {
		set[key] = true
	}
	return slices.SortedFunc(maps.Keys(set), func(a, b store.Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Workload, b.Workload))
	})
}

// world is what this pass saw of one workload, but for what others explain.
func (o *observer) world(s *sight, key store.Key) (World, placed) {
	w := World{Now: s.at, Boot: o.clock.Boot(), Workload: key}
	record, known := o.store.Workload(key)
	if !known {
		record.Key = key
	}
	w.Record = Known(record)
	d := details{processes: map[string]lock.Process{}}
	if why := s.unclear[key]; why != "" {
		d.findings = append(d.findings, why)
	}
	w.Active = o.active(s, record)
	d.facts = o.leading(record, w.active())
	w.Locked = d.facts.Lock != nil
	w.Grace = d.facts.Grace

	pods := o.place(s, record, d.facts)
	d.findings = append(d.findings, pods.strangers(s, d.facts)...)
	d.findings = append(d.findings, o.lockExecMissing(d.facts)...)
	switch {
	case d.facts.err != nil: // nobody knows whether it has a lock
		w.Serves, w.Queue = Unknown[Party]("%s", d.facts.err), Unknown[[]Party]("%s", d.facts.err)
	case w.Locked:
		o.seeLock(&w, &d, pods)
	default:
		o.seeContainers(&w, pods)
	}
	w.Ready = o.ready(w, d.facts)
	w.Synced = synced(s.kubelet)
	w.Unusable, w.Absent = o.unusable(record)
	d.findings = append(d.findings, o.imageFindings(w)...)
	w.Data = o.dataOf(w, record)
	d.findings = append(d.findings, o.dataFindings(w)...)
	w.API = o.parents(s, w, record, &d)
	w.Ending = o.ending(s, w)
	s.details[key] = d
	return w, pods
}

// count adds what the runtime tells of containers that have ended. Those that
// ended for want of a dependency do not count.
func (o *observer) count(w *World, pods placed) {
	w.Parent = pods.parents(o.watch, w.excused())
	w.Exits = pods.exits(o.watch, w.active(), w.state(), w.Boot, w.excused())
}

// active is the activation that the static pod directory holds.
func (o *observer) active(s *sight, record store.Workload) Observed[*Active] {
	if _, ok := s.listing.Value(); !ok {
		return Unknown[*Active]("%s", s.listing.Why())
	}
	if why := s.unclear[record.Key]; why != "" {
		return Unknown[*Active]("%s", why)
	}
	listing, _ := s.listing.Value()
	for _, problem := range listing.Problems {
		if !problem.Read && problem.File == kubelet.File(record.Key.Namespace, record.Key.Workload) {
			return Unknown[*Active]("%s", problem)
		}
	}
	m, ok := s.manifests[record.Key]
	if !ok {
		return Known[*Active](nil)
	}
	active := &Active{
		ID: m.Activation, Generation: m.Generation,
		Files: o.store.Files(record.Key, m.Activation),
		Since: o.watch.since(record.Key.String()+" manifest", m.Activation),
	}
	if g, ok := find(record, active.Files); ok {
		active.Fixed = o.read(record.Key, g).Fixed
	}
	if a := record.State.Activation; a != nil && a.ID == m.Activation {
		active.ServedBy = a.ServedBy
		if a.BootID == o.clock.Boot() {
			active.Since = a.At
		}
	}
	return Known(active)
}

// leading are the facts of the generation that is active, else of the newest that
// can be read. Their err is set where there are generations and none can be read.
func (o *observer) leading(record store.Workload, active *Active) facts {
	var first facts
	for i, g := range slices.Backward(record.Generations) {
		f := o.read(record.Key, g)
		if active != nil && g.Seq == active.Generation && f.err == nil {
			return f
		}
		if f.err == nil || i == len(record.Generations)-1 {
			first = f
		}
	}
	return first
}

func (o *observer) read(key store.Key, g store.Generation) facts {
	at := factKey{key, g.Seq}
	if f, ok := o.facts[at]; ok {
		return f
	}
	var f facts
	pod, err := snapshot.Decode(g.Pod)
	if err == nil {
		f.identity = snapshot.IdentityOf(pod)
		f.Facts, err = snapshot.FactsOf(pod)
	}
	f.err = err
	o.facts[at] = f
	return f
}

// unusable names the generations that can't be read, and why, and those whose image
// is not on this node, by the image.
func (o *observer) unusable(record store.Workload) (broken, absent map[int64]string) {
	images, known := o.images().Value()
	broken, absent = map[int64]string{}, map[int64]string{}
	for _, g := range record.Generations {
		f := o.read(record.Key, g)
		if f.err != nil {
			broken[g.Seq] = f.err.Error()
			continue
		}
		for _, image := range f.Images {
			if seen, asked := images[image]; known && asked && !seen.Present && seen.Unclear == "" {
				absent[g.Seq] = image
			}
		}
	}
	return broken, absent
}

// ready is the probe's answer about who serves now.
func (o *observer) ready(w World, f facts) Observed[Readiness] {
	serves, ok := w.Serves.Value()
	if !ok || serves.Role == Nobody {
		return Unknown[Readiness]("nobody serves")
	}
	if record, _ := w.Record.Value(); len(record.Generations) == 0 {
		return Unknown[Readiness]("no generation tells how to ask")
	}
	key := w.Workload.String() + " ready"
	if f.Ready == nil {
		served := w.age(serves.Since) >= servedLong
		since := o.watch.since(key, serves.ID+map[bool]string{true: " ok", false: " no"}[served])
		return Known(Readiness{OK: served, Since: since, Why: "no readiness probe; it serves for less than 10s"})
	}
	answer := o.sources.Ready(w.Workload, serves.ID)
	if answer.At == 0 || w.Now-answer.At > readyAge {
		return Unknown[Readiness]("readiness: has not been asked of this process")
	}
	why := ""
	if answer.Err != nil {
		why = answer.Err.Error()
	}
	since := o.watch.since(key, serves.ID+map[bool]string{true: " ok", false: " no"}[answer.Value])
	return Known(Readiness{OK: answer.Value, Since: since, Why: why})
}

func synced(seen Observed[kubelet.View]) Observed[bool] {
	view, ok := seen.Value()
	switch {
	case !ok:
		return Unknown[bool]("%s", seen.Why())
	case view.Regime == kubelet.Synced:
		return Known(true)
	case view.Regime == kubelet.Unsynced:
		return Known(false)
	}
	return Unknown[bool]("kubelet: %s", view.Why)
}

// forget drops the facts of generations that are gone.
func (o *observer) forget() {
	for at := range o.facts {
		w, ok := o.store.Workload(at.key)
		if !ok || !slices.ContainsFunc(w.Generations, func(g store.Generation) bool { return g.Seq == at.seq }) {
			delete(o.facts, at)
		}
	}
	for key := range o.content {
		if _, ok := o.store.Workload(key); !ok {
			delete(o.content, key)
		}
	}
}
