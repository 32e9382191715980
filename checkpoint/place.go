package checkpoint

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// Annotations of a checkpoint, on manifest and sandbox.
const (
	ofKey         = snapshot.AnnotationCheckpointOf
	activationKey = snapshot.AnnotationActivation
)

// placed are the pods of one workload as the runtime shows them, by role.
type placed struct {
	key       store.Key
	why       string // not "": the runtime is Unknown
	container string // the one that takes the lock; "": any
	parent    []cri.Pod
	ours      []cri.Pod
	manifest  *kubelet.Manifest
	wanted    bool             // the API server has a parent that is not on its way out
	uids      map[string]Party // role by pod UID, for when the runtime can't tell
}

// place sorts the runtime's pods into this workload's parents and checkpoints.
func (o *observer) place(s *sight, record store.Workload, f facts) placed {
	p := placed{key: record.Key, uids: map[string]Party{}}
	if f.Lock != nil {
		p.container = f.Lock.Container
	}
	if m, ok := s.manifests[record.Key]; ok {
		p.manifest = &m
	}
	p.byUID(s, record)
	pods, ok := s.pods.Value()
	if !ok {
		p.why = s.pods.Why()
		return p
	}
	for _, pod := range pods {
		switch {
		case pod.Annotation(ofKey) == record.Key.String() && pod.Source != "api":
			p.ours = append(p.ours, pod)
			p.uids[pod.UID] = p.checkpoint(pod.Annotation(activationKey))
		case pod.Source == "api" && pod.Namespace == record.Key.Namespace &&
			(p.uids[pod.UID].Role == Parent || snapshot.Matches(pod.Namespace, pod.Name, annotations(pod), f.identity)):
			p.parent = append(p.parent, pod)
			p.uids[pod.UID] = Party{Role: Parent, Pod: pod.UID}
		}
	}
	slices.SortStableFunc(p.parent, func(a, b cri.Pod) int { return made(b).Compare(made(a)) })
	return p
}

// strangers names the parents that do not stand to this workload as the generation
// does that leads, and what to do.
func (p *placed) strangers(s *sight, f facts) []string {
	var findings []string
	all, told := s.api.Value()
	for _, pod := range p.parent {
		lock, asks := snapshot.Asks(annotations(pod))
		name := pod.Namespace + "/" + pod.Name
		switch {
		case !pod.Ready() || f.identity.Workload == "":
		case asks && lock != f.identity.Lock:
			findings = append(findings, fmt.Sprintf("LockRenamed: the pod %s is under the lock %q, and what is on disk of it under %q: neither waits for the other; set annotation and command back",
				name, lock, f.identity.Lock))
		case told && !all.lists(p.key, pod.UID):
			findings = append(findings, fmt.Sprintf("Unwanted: the pod %s does not ask to be protected: what is on disk stays, and starts when the pod is gone; the manual says how to remove it",
				name))
		}
	}
	return findings
}

// byUID is what disk and API server tell of the pods' UIDs.
func (p *placed) byUID(s *sight, record store.Workload) {
	for _, g := range record.Generations {
		p.uids[g.Source.PodUID] = Party{Role: Parent, Pod: g.Source.PodUID}
	}
	if parents, ok := s.api.Value(); ok {
		p.wanted = parents.workloads[record.Key].newest != ""
		for uid := range parents.workloads[record.Key].drafts {
			p.uids[uid] = Party{Role: Parent, Pod: uid}
		}
	}
	if h := record.State.Handoff; h != nil {
		p.uids[h.ParentUID] = Party{Role: Parent, Pod: h.ParentUID}
	}
	if a := record.State.Activation; a != nil {
		p.uids[a.ID] = p.checkpoint(a.ID)
	}
	if p.manifest != nil {
		p.uids[p.manifest.UID] = p.checkpoint(p.manifest.Activation)
	}
}

// checkpoint is the party of one activation.
func (p *placed) checkpoint(activation string) Party {
	party := Party{Role: Stale, Pod: activation, Activation: activation}
	if p.manifest != nil && p.manifest.Activation == activation {
		party.Role = Checkpoint
	}
	return party
}

// party says whose a process in the lock table is.
func (p *placed) party(process lock.Process) Party {
	party, ok := p.uids[process.PodUID]
	if !ok || process.PodUID == "" {
		party = Party{Role: Foreign, Pod: process.PodUID}
	}
	party.ID = process.ContainerID
	if party.ID == "" {
		party.ID = "pid " + strconv.Itoa(process.PID)
	}
	return party
}

// parents is what the runtime shows of the parents' containers.
func (p *placed) parents(watch *watch, excused bool) Observed[Containers] {
	if p.why != "" {
		return Unknown[Containers]("%s", p.why)
	}
	c := Containers{New: p.wanted && len(p.parent) == 0}
	c.Gone = !c.New
	for i, pod := range p.parent {
		if pod.Ready() {
			c.Gone = false
		}
		for _, container := range p.watched(pod) {
			c.Live = c.Live || live(container)
			if i == 0 { // the newest parent
				exits := watch.ended(p.key.String()+" parent "+pod.UID+" "+container.Name, ended(container), false, excused)
				c.Twice = c.Twice || exits >= 2
			}
		}
	}
	c.Since = watch.since(p.key.String()+" parent-live", strconv.FormatBool(c.Live))
	return Known(c)
}

// watched are the containers that count.
func (p *placed) watched(pod cri.Pod) []cri.Container {
	if p.container == "" {
		return pod.Containers
	}
	if c, ok := pod.Container(p.container); ok {
		return []cri.Container{c}
	}
	return nil
}

// exits counts how often the container of the active checkpoint has ended.
func (p *placed) exits(watch *watch, active *Active, state store.State, boot string, excused bool) Observed[int] {
	if p.why != "" {
		return Unknown[int]("%s", p.why)
	}
	if active == nil {
		return Known(0)
	}
	total := 0
	for _, pod := range p.ours {
		if pod.Annotation(activationKey) != active.ID {
			continue
		}
		for _, c := range p.watched(pod) {
			total = max(total, ended(c))
		}
	}
	fresh := state.Activation != nil && state.Activation.ID == active.ID && state.Activation.BootID == boot && active.ServedBy == ""
	return Known(watch.ended(active.ID, total, fresh, excused))
}

// seeLock fills in who holds the lock and who waits for it.
func (o *observer) seeLock(w *World, d *details, p placed) {
	state, err := o.sources.Lock(d.facts.Lock.Path)
	if err != nil {
		w.Serves = Unknown[Party]("%s", err)
		w.Queue = Unknown[[]Party]("%s", err)
		return
	}
	if state.Split { // who uses the old file may serve, and the table of the new one does not tell
		why := fmt.Sprintf("LockSplit: the file %s was replaced under a process that uses it: end that process", state.Path)
		d.findings = append(d.findings, why)
		w.Serves, w.Queue = Unknown[Party]("%s", why), Unknown[[]Party]("%s", why)
		return
	}
	key := w.Workload.String()
	holder := Party{ID: "none"}
	if state.Holder != nil {
		holder = p.party(*state.Holder)
		d.processes[holder.ID] = *state.Holder
	}
	if holder.Role == Foreign {
		d.findings = append(d.findings, fmt.Sprintf("ForeignHolder: %s holds %s and is no pod of this workload", holder.ID, state.Path))
	}
	holder.Since = o.watch.since(key+" holder", holder.ID)
	w.Serves = Known(holder)
	var queue []Party
	for _, process := range state.Waiters {
		party := p.party(process)
		d.processes[party.ID] = process
		party.Since = o.watch.since(key+" waits "+party.ID, party.Role.String())
		queue = append(queue, party)
	}
	w.Queue = Known(queue)
}

// seeContainers fills in who serves where no lock tells: whose container runs.
// A checkpoint that runs beside its parent is the one that has to go.
func (o *observer) seeContainers(w *World, p placed) {
	if p.why != "" {
		w.Serves = Unknown[Party]("%s", p.why)
		w.Queue = Unknown[[]Party]("%s", p.why)
		return
	}
	for _, pod := range slices.Concat(p.parent, p.ours) {
		for _, c := range pod.Containers {
			if c.State == cri.Unknown {
				why := fmt.Sprintf("runtime: the state of container %s is unknown to it", c.ID)
				w.Serves, w.Queue = Unknown[Party]("%s", why), Unknown[[]Party]("%s", why)
				return
			}
		}
	}
	runs := Party{ID: "none"}
	var queue []Party
	for _, pod := range p.parent {
		for _, c := range pod.Containers {
			if c.State == cri.Running {
				runs = Party{Role: Parent, ID: c.ID, Pod: pod.UID}
			}
		}
	}
	for _, pod := range p.ours {
		for _, c := range pod.Containers {
			if c.State != cri.Running {
				continue
			}
			runs = p.checkpoint(pod.Annotation(activationKey))
			runs.ID = c.ID
			queue = p.after(c.CreatedAt)
		}
	}
	runs.Since = o.watch.since(w.Workload.String()+" holder", runs.ID)
	w.Serves = Known(runs)
	w.Queue = Known(queue)
}

// after is the parent, if a container of it is live, whichever of the two was made
// first: the kubelet makes ours anew each time that it ends. One that was made later
// and has ended counts too, unless its pod is gone: the checkpoint may have its port.
func (p *placed) after(created time.Time) []Party {
	for _, pod := range p.parent {
		for _, c := range pod.Containers {
			if live(c) || pod.Ready() && c.CreatedAt.After(created) {
				return []Party{{Role: Parent, ID: c.ID, Pod: pod.UID}}
			}
		}
	}
	return nil
}

// ended is how often a container of that name has ended in its pod.
func ended(c cri.Container) int {
	if live(c) {
		return int(c.Attempt)
	}
	return int(c.Attempt) + 1
}

// live: one whose state the runtime does not know may run.
func live(c cri.Container) bool { return c.State != cri.Exited }

func made(pod cri.Pod) time.Time {
	if len(pod.Sandboxes) == 0 {
		return time.Time{}
	}
	return pod.Sandboxes[0].CreatedAt
}

func annotations(pod cri.Pod) map[string]string {
	if len(pod.Sandboxes) == 0 {
		return nil
	}
	return pod.Sandboxes[0].Annotations
}
