package api

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// maxTakes is how often everything is asked for within one View at most.
const maxTakes = 3

// Versions are the resourceVersions of the Secrets and ConfigMaps in the View: two
// Views in which they are equal hold the same ones.
func (v *View) Versions() map[Ref]string {
	out := make(map[Ref]string, len(v.Secrets)+len(v.ConfigMaps))
	for ref, o := range v.Secrets {
		out[ref] = o.ResourceVersion
	}
	for ref, o := range v.ConfigMaps {
		out[ref] = o.ResourceVersion
	}
	return out
}

// changed names the objects that are newer than the list: with an older one beside
// it, such an object may be half of a change. An etcd counts its changes over all
// kinds of objects. An API server that keeps some of them in another etcd counts
// those apart: an object that has the version that it had before does not change,
// whatever its number.
func (v *View) changed(before map[Ref]string) []Ref {
	var refs []Ref
	for ref, version := range v.Versions() {
		newer, err := resourceversion.CompareResourceVersion(version, v.ResourceVersion)
		if err == nil && newer > 0 && version != before[ref] {
			refs = append(refs, ref)
		}
	}
	return refs
}

// doubt makes what has changed unknown, and nothing else: it is of no use to wait
// for one that changes all the time.
func (v *View) doubt(before map[Ref]string) {
	for _, ref := range v.changed(before) {
		delete(v.Secrets, ref)
		delete(v.ConfigMaps, ref)
		v.Failed[ref] = fmt.Errorf("get %s %s in namespace %s: %w, %d times on end", ref.Kind.resource(), ref.Name, ref.Namespace, ErrChanging, maxTakes)
	}
}
