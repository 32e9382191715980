package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// depend fills in what each workload starts after, once it is seen of all of them
// who serves and is ready.
func (o *observer) depend(s *sight) {
	known, after := map[string]*World{}, map[string][]string{}
	for i := range s.worlds {
		w := &s.worlds[i]
		name := w.Workload.String()
		known[name], after[name] = w, s.details[w.Workload].facts.After
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		w := known[name]
		d := s.details[w.Workload]
		if cycle := cycleOf(name, after); len(cycle) > 0 {
			d.findings = append(d.findings, fmt.Sprintf("DependencyCycle: %s: all of them start as if they had no annotation after; take one out",
				strings.Join(cycle, " after ")))
		} else {
			for _, other := range after[name] {
				w.After = append(w.After, o.dependency(known[other], other))
				if finding := unknownDependency(known[other], other); finding != "" {
					d.findings = append(d.findings, finding)
				}
			}
		}
		s.details[w.Workload] = d
		w.After = append(w.After, o.etcd(*w)...)
	}
}

// unknownDependency is the finding of a dependency of which nobody knows whether it answers.
func unknownDependency(w *World, name string) string {
	switch {
	case w == nil:
		return fmt.Sprintf("UnknownDependency: after names %s, and no such workload is protected on this node: each start waits %s for nothing; correct the annotation",
			name, maxDependencyWait)
	case !w.saved():
		return fmt.Sprintf("UnknownDependency: after names %s, of which nothing is on disk that tells how to ask it: each start waits %s for nothing; see why it is not protected",
			name, maxDependencyWait)
	}
	return ""
}

// dependency tells whether a workload answers, and since when. Nobody knows of one
// that this node does not have (w is nil), or of which it has no generation.
func (o *observer) dependency(w *World, name string) Dependency {
	if w == nil || !w.saved() {
		return Dependency{Name: name}
	}
	serves, seen := w.Serves.Value()
	ready, asked := w.Ready.Value()
	answers := seen && serves.Role != Nobody && asked && ready.OK
	return Dependency{
		Name: name, Known: true, Answers: answers,
		Since: o.watch.since(name+" answers", strconv.FormatBool(answers)),
	}
}

// etcd is a dependency of an API server, which says so itself: a readiness that
// fails lists each check of it (k8s.io/apiserver v0.37.2, pkg/server/healthz). It is
// one from the first time on that it was away, and away until an API server says
// otherwise: one that was not asked, or did not list its checks, says nothing of it.
func (o *observer) etcd(w World) []Dependency {
	key := w.Workload.String() + " etcd answers"
	answers, known := o.watch.value(key)
	switch ready, asked := w.Ready.Value(); {
	case asked && strings.Contains(ready.Why, "[-]etcd"):
		answers, known = "false", true
	case known && asked && (ready.OK || strings.Contains(ready.Why, "[-]")):
		answers = "true"
	}
	if !known {
		return nil
	}
	return []Dependency{{Name: etcd, Known: true, Answers: answers == "true", Since: o.watch.since(key, answers)}}
}

// cycleOf is a shortest way from a workload back to itself, both ends named; nil if
// there is none.
func cycleOf(name string, after map[string][]string) []string {
	from := map[string]string{} // by which workload each was reached
	for reached := []string{name}; len(reached) > 0; reached = reached[1:] {
		for _, other := range after[reached[0]] {
			if _, seen := from[other]; seen {
				continue
			}
			from[other] = reached[0]
			if other == name {
				return wayBack(name, from)
			}
			reached = append(reached, other)
		}
	}
	return nil
}

func wayBack(name string, from map[string]string) []string {
	way := []string{name}
	for at := from[name]; at != name; at = from[at] {
		way = append(way, at)
	}
	way = append(way, name)
	slices.Reverse(way)
	return way
}
