package checkpoint

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
)

// parentsByWorkload is the API server's view of this node, snapshot by snapshot.
type parentsByWorkload struct {
	view      *api.View
	workloads map[store.Key]parents
	strays    []string   // protected pods that belong to no workload, and why
	supplied  []supplied // the parents that take more than the view holds
	errands   Errands
}

// parents are the pods of one workload.
type parents struct {
	newest  string                        // UID of the newest that is not on its way out
	staying []string                      // names of all that are not, the newest first
	ending  map[string]bool               // by UID: it is being deleted
	drafts  map[string]store.Draft        // by UID; of those that can be made static
	refused map[string]string             // by UID: why not
	data    map[string]*snapshot.Snapshot // by UID: of those that name a data directory
	unknown map[string]string             // by UID: which of its objects could not be read
	finding map[string][]string           // by UID: what a user ought to know
	trusts  map[string][]Trust            // by UID: where its clients find the API server
	same    map[saved]bool                // what is known already: to find out digests each Secret
}

// saved is the question whether the draft of a parent is the same as a generation.
type saved struct {
	uid string
	seq int64
}

// in tells whether the draft of a parent is that generation, and asks only once.
func (p parents) in(g store.Generation, uid string) bool {
	of := saved{uid, g.Seq}
	same, known := p.same[of]
	if !known {
		same = g.Same(p.drafts[uid])
		p.same[of] = same
	}
	return same
}

// snapshots are those of a view. They are taken once, and again when something is
// there that was lacking.
func (o *observer) snapshots(view Observed[*api.View], seen Observed[[]cri.Pod]) Observed[*parentsByWorkload] {
	v, ok := view.Value()
	if !ok {
		return Unknown[*parentsByWorkload]("%s", view.Why())
	}
	if o.drawn == nil || o.drawn.view != v || o.resupplied(o.drawn.supplied, v, seen) {
		o.drawn = o.draw(v, seen)
	}
	return Known(o.drawn)
}

// draw takes a snapshot of each protected pod in the view.
func (o *observer) draw(view *api.View, seen Observed[[]cri.Pod]) *parentsByWorkload {
	out := &parentsByWorkload{view: view, workloads: map[store.Key]parents{}}
	pods := slices.Clone(view.Pods)
	slices.SortFunc(pods, newer)
	for i := range pods {
		pod := &pods[i]
		if !snapshot.Wanted(pod) || !slices.Contains(o.config.Namespaces, pod.Namespace) {
			continue
		}
		namespace, workload, err := snapshot.Workload(pod)
		if err != nil {
			out.strays = append(out.strays, pod.Namespace+"/"+pod.Name+": "+err.Error())
			continue
		}
		key := store.Key{Namespace: namespace, Workload: workload}
		p, ok := out.workloads[key]
		if !ok {
			p = parents{ending: map[string]bool{}, drafts: map[string]store.Draft{}, refused: map[string]string{}, data: map[string]*snapshot.Snapshot{}, unknown: map[string]string{}, finding: map[string][]string{}, trusts: map[string][]Trust{}, same: map[saved]bool{}}
		}
		s := supplied{key: key, pod: pod}
		if takes(pod) {
			s.supply = o.supply(key, pod, view, seen)
			out.supplied = append(out.supplied, s)
		}
		p.add(pod, view, s.supply, o.config)
		s.errands.Trusts = p.trusts[string(pod.UID)]
		if p.refused[string(pod.UID)] != "" {
			s.errands.Tokens = nil
		}
		out.errands.add(s.errands)
		out.workloads[key] = p
	}
	return out
}

// lists tells whether the API server has this pod as a protected one of a workload.
func (p *parentsByWorkload) lists(key store.Key, uid string) bool {
	w := p.workloads[key]
	_, drawn := w.drafts[uid]
	return drawn || w.refused[uid] != "" || w.unknown[uid] != ""
}

// add takes the snapshot of one parent.
func (p *parents) add(pod *v1.Pod, view *api.View, s supply, c Config) {
	uid := string(pod.UID)
	ending := pod.DeletionTimestamp != nil || pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded
	if !ending {
		p.staying = append(p.staying, pod.Name)
	}
	if p.newest == "" && !ending {
		p.newest = uid
	}
	p.ending[uid] = pod.DeletionTimestamp != nil
	objects, err := objectsOf(pod, view)
	if err != nil {
		p.unknown[uid] = err.Error()
		return
	}
	objects.Tokens, objects.Images = s.tokens, s.images
	taken, err := snapshot.Take(pod, objects, snapshot.Config{LockDir: c.LockDir, BinDir: c.BinDir, Node: c.Node, Endpoint: inCluster(c, view)})
	if err != nil {
		p.refused[uid] = err.Error()
		return
	}
	if s.lacks != "" {
		p.unknown[uid] = s.lacks
		return
	}
	draft, err := draftOf(taken, pod, view)
	if err != nil {
		p.refused[uid] = err.Error()
		return
	}
	if taken.Data.Path != "" {
		p.data[uid] = taken
	}
	p.drafts[uid], p.trusts[uid] = draft, trustsOf(taken, s.tokens)
	p.finding[uid] = slices.Concat(taken.Findings, s.findings, surges(pod, view))
}

// objectsOf are those that a pod names, as the view has them. An error says which of
// them is unknown, and why.
func objectsOf(pod *v1.Pod, view *api.View) (snapshot.Objects, error) {
	o := snapshot.Objects{Secrets: map[string]*v1.Secret{}, ConfigMaps: map[string]*v1.ConfigMap{}}
	for _, ref := range refsOf(pod) {
		if err := view.Failed[ref]; err != nil {
			return o, err
		}
		if secret := view.Secrets[ref]; secret != nil {
			o.Secrets[ref.Name] = secret
		}
		if configMap := view.ConfigMaps[ref]; configMap != nil {
			o.ConfigMaps[ref.Name] = configMap
		}
	}
	return o, nil
}

// refsOf are the objects that a pod names.
func refsOf(pod *v1.Pod) []api.Ref {
	var refs []api.Ref
	for _, r := range snapshot.References(pod) {
		refs = append(refs, api.Ref{Kind: api.Kind(r.Kind), Namespace: r.Namespace, Name: r.Name})
	}
	return refs
}

// inCluster is where a checkpoint's in-cluster clients find the API server.
func inCluster(c Config, view *api.View) string {
	if c.APIEndpoint != "" || view.NodeIP == "" {
		return c.APIEndpoint
	}
	return "https://" + net.JoinHostPort(view.NodeIP, "6443")
}

// surges: a DaemonSet that starts the new pod first ends the old one once the new
// one is ready, which it can't be without the lock.
func surges(pod *v1.Pod, view *api.View) []string {
	owner, ok := api.OwnerOf(pod)
	spec := view.Owners[owner]
	if !ok || spec.UID != owner.UID || slices.Contains([]string{"", "0", "0%"}, spec.MaxSurge) {
		return nil
	}
	return []string{fmt.Sprintf("MaxSurge: DaemonSet %s may start a new pod beside the old one (maxSurge %s): with a lock it waits for ever and the update stands still, without one both run; set updateStrategy.rollingUpdate.maxSurge to 0",
		owner.Name, spec.MaxSurge)}
}

func draftOf(s *snapshot.Snapshot, pod *v1.Pod, view *api.View) (store.Draft, error) {
	data, err := json.Marshal(s.Pod)
	if err != nil {
		return store.Draft{}, err
	}
	draft := store.Draft{Pod: data, Source: store.Source{
		PodName: pod.Name, PodUID: string(pod.UID), Node: pod.Spec.NodeName, NodeUID: view.NodeUID,
	}}
	for _, volume := range s.Volumes {
		out := store.Volume{Name: volume.Name, Optional: volume.Optional}
		for _, f := range volume.Files {
			out.Files = append(out.Files, store.File{Path: f.Path, Data: f.Data, Mode: f.Mode, UID: f.UID, GID: f.GID})
		}
		draft.Volumes = append(draft.Volumes, out)
	}
	return draft, nil
}

// parents is what the API server has of one workload, compared with the disk.
func (o *observer) parents(s *sight, w World, record store.Workload, d *details) Observed[Parents] {
	all, ok := s.api.Value()
	if !ok {
		return Unknown[Parents]("%s", s.api.Why())
	}
	p := all.workloads[record.Key]
	d.findings = append(d.findings, siblings(p.staying)...)
	d.data = p.dataDirs()
	if why := o.keepsData(w, record, p); why != "" {
		return Unknown[Parents]("%s", why)
	}
	if why := p.unknown[p.newest]; why != "" {
		if len(record.Generations) > 0 {
			d.findings = append(d.findings, "NotRead: "+why+"; the last generation stays")
		}
		return Unknown[Parents]("%s", why)
	}
	out := Parents{Refused: p.refused[p.newest], Saved: map[string]bool{}}
	if len(record.Generations) > 0 {
		for uid := range p.drafts {
			out.Saved[uid] = p.in(record.Generations[0], uid)
		}
	}
	d.findings = append(d.findings, p.finding[p.newest]...)
	d.findings = append(d.findings, o.distrusted(p.trusts[p.newest])...)
	if draft, ok := p.drafts[p.newest]; ok {
		draft.Source.ContainerID = o.container(s, p.newest, d.facts)
		d.draft = &draft
		out.Changed = !out.Saved[p.newest]
	}
	if out.Refused != "" && len(record.Generations) > 0 {
		d.findings = append(d.findings, out.Refused+"; the last generation stays")
	}
	return Known(out)
}

// ending tells whether the API server has said, since this daemon started, that the
// parent that serves is being deleted.
func (o *observer) ending(s *sight, w World) bool {
	serves, _ := w.Serves.Value()
	if serves.Role != Parent {
		return false
	}
	all, told := s.api.Value()
	said := w.Workload.String() + " ending " + serves.Pod
	if _, before := o.watch.value(said); !before && !(told && all.workloads[w.Workload].ending[serves.Pod]) {
		return false
	}
	o.watch.since(said, "")
	return true
}

// container is the one of a pod that takes the lock, by id; "" if none is there.
func (o *observer) container(s *sight, uid string, f facts) string {
	pods, known := s.pods.Value()
	if !known {
		return unseenContainer
	}
	for _, pod := range pods {
		if pod.UID != uid {
			continue
		}
		for _, c := range pod.Containers {
			if (f.Lock == nil || c.Name == f.Lock.Container) && live(c) {
				return c.ID
			}
		}
	}
	return ""
}
