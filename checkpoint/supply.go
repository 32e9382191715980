package checkpoint

import (
	"cmp"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
)

// Errands are what snapshots need and nobody has told yet.
type Errands struct {
	Tokens      []TokenWant
	Entrypoints []string // of these images
	Trusts      []Trust
}

// add leaves out what is there already.
func (e *Errands) add(more Errands) {
	e.Tokens = union(e.Tokens, more.Tokens)
	e.Entrypoints = union(e.Entrypoints, more.Entrypoints)
	e.Trusts = union(e.Trusts, more.Trusts)
}

func union[T comparable](all, more []T) []T {
	for _, one := range more {
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all
}

// supply is what a snapshot takes that is no object in a View.
type supply struct {
	tokens   map[snapshot.TokenRef]string
	images   map[string]snapshot.Image
	findings []string
	lacks    string // why it is not all there; "": it is
	errands  Errands
}

// supplied is a parent that takes something of the kind, and what it got.
type supplied struct {
	key store.Key
	pod *v1.Pod
	supply
}

// someImage stands for one that is not known yet.
var someImage = snapshot.Image{Entrypoint: []string{"/program"}}

// supply finds out what pod takes. Something stands there for what is lacking, so that
// a pod which can't be made static for another reason is known as such: for that one
// no token is asked.
func (o *observer) supply(key store.Key, pod *v1.Pod, view *api.View, pods Observed[[]cri.Pod]) supply {
	s := supply{tokens: map[snapshot.TokenRef]string{}, images: map[string]snapshot.Image{}}
	wants := tokensOf(pod, view)
	for _, want := range wants {
		value, asks, finding, lacks := o.token(o.contents(key).tokens, want, wants, view)
		s.tokens[want.TokenRef] = value
		if asks && !o.config.DryRun {
			s.errands.Tokens = append(s.errands.Tokens, want)
		}
		if finding != "" {
			s.findings = append(s.findings, finding)
		}
		s.lacks = cmp.Or(s.lacks, lacks)
	}
	for _, image := range snapshot.ImageRefs(pod) {
		running := runningImage(pod, image, pods)
		s.errands.Entrypoints = append(s.errands.Entrypoints, running)
		switch told := o.sources.Entrypoint(running); {
		case told.Err != nil:
			s.images[image], s.lacks = someImage, cmp.Or(s.lacks, told.Err.Error())
		case told.At == 0:
			s.images[image], s.lacks = someImage, cmp.Or(s.lacks, "entrypoint of image "+image+": it is being asked for")
		case told.Value != nil:
			s.images[image] = *told.Value
		}
	}
	return s
}

// takes tells whether a pod takes something that is no object in a View.
func takes(pod *v1.Pod) bool {
	return len(snapshot.TokenRefs(pod)) > 0 || len(snapshot.ImageRefs(pod)) > 0
}

// runningImage is what a container of the pod runs for an image, by id, else the image
// as the pod names it: a name may stand for another image by now.
func runningImage(pod *v1.Pod, image string, pods Observed[[]cri.Pod]) string {
	seen, _ := pods.Value()
	for _, p := range seen {
		if p.UID != string(pod.UID) {
			continue
		}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if runs, ok := p.Container(c.Name); ok && c.Image == image && runs.ImageRef != "" {
				return runs.ImageRef
			}
		}
	}
	return image
}

// errands are those of the newest view, whatever the API server says now.
func (o *observer) errands() Errands {
	if o.drawn == nil {
		return Errands{}
	}
	return o.drawn.errands
}

// resupplied tells whether some parent would be supplied with something else by now.
func (o *observer) resupplied(all []supplied, view *api.View, pods Observed[[]cri.Pod]) bool {
	for _, s := range all {
		if !reflect.DeepEqual(s.supply, o.supply(s.key, s.pod, view, pods)) {
			return true
		}
	}
	return false
}
