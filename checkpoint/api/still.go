package api

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Still are the objects of a View that have not changed since, as their watches tell,
// for the next View not to ask for again. nil are none.
//
// A watch may be late, so each of these objects is watched again from where its own
// watch began: what it did not tell in time makes another View.
type Still struct {
	of      *View
	changed map[Ref]bool
}

// within is nil where these objects are of another cluster than v, or of its future: an
// older state of it was restored.
func (s *Still) within(v *View) *Still {
	if s == nil || s.of.KubeSystemUID != v.KubeSystemUID {
		return nil
	}
	if older, err := resourceversion.CompareResourceVersion(v.ResourceVersion, s.of.ResourceVersion); err != nil || older < 0 {
		return nil
	}
	return s
}

// give puts into v what is known of an object, if it is.
func (s *Still) give(v *View, r Ref) bool {
	switch {
	case s == nil || s.changed[r] || r.Kind == ServiceAccount: // of which there is no watch
		return false
	case s.of.Secrets[r] != nil:
		v.Secrets[r] = s.of.Secrets[r]
	case s.of.ConfigMaps[r] != nil:
		v.ConfigMaps[r] = s.of.ConfigMaps[r]
	case s.of.Missing[r]:
		v.Missing[r] = true
	default:
		return false
	}
	v.since[r] = cmp.Or(s.of.since[r], s.of.ResourceVersion)
	v.whole = s.of.whole
	return true
}

// settle returns the objects that changed, once a change is over: a pod's at once, an
// object's when no other one has followed for a moment, since whoever changes several,
// as kubectl apply does, changes one after the other. It is not over before the earliest
// time for another View: while that is awaited the watches go on.
func (p pace) settle(ctx context.Context, told <-chan Ref, earliest time.Time) map[Ref]bool {
	changed, pods := map[Ref]bool{}, false
	var over <-chan time.Time
	var end time.Time
	for {
		select {
		case <-ctx.Done():
			return changed
		case <-over:
			return changed
		case ref := <-told:
			wait := time.Duration(0)
			if ref != (Ref{}) {
				if len(changed) == 0 {
					end = time.Now().Add(restless * p.quiet)
				}
				changed[ref] = true
				wait = min(p.quiet, time.Until(end))
			}
			if !pods {
				over = time.After(max(wait, time.Until(earliest)))
			}
			pods = pods || ref == (Ref{})
		}
	}
}

// restless is for how many times the quiet that it wants settle waits at most.
const restless = 4
