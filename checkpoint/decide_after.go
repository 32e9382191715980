package checkpoint

import (
	"strings"
	"time"
)

const (
	// maxDependencyWait is how long a start that is due waits for what it comes
	// after: one that never answers may not take this one down as well.
	maxDependencyWait = 30 * time.Second
	// aftermath is how long after a dependency is back its absence may still end a
	// program: leader election gives up 10 s after the last renewal
	// (k8s.io/component-base v0.37.2, config/v1alpha1/defaults.go), and the runtime
	// is a moment late.
	aftermath = 15 * time.Second
	// maxExcuse is how long a dependency that does not answer explains what fails:
	// then all goes on as if it did, with the usual backoff, since nobody can tell its
	// outage from a fault of whoever misses it.
	maxExcuse = 5 * time.Minute
	// etcd is the dependency that an API server names itself.
	etcd = "etcd"
)

// awaited are the dependencies that a start waits for. Of etcd nobody but an API
// server that runs can tell that it is back.
func (w World) awaited() []string {
	var names []string
	for _, d := range w.After {
		if !d.Answers && d.Name != etcd {
			names = append(names, d.Name)
		}
	}
	return names
}

// missing are the dependencies that explain whatever fails now.
func (w World) missing() []string {
	var names []string
	for _, d := range w.After {
		if w.explains(d) && !d.Answers && w.age(d.Since) < maxExcuse {
			names = append(names, d.Name)
		}
	}
	return names
}

// explains tells whether an outage of that dependency may be why this workload fails.
// None of etcd is, if it began with a parent that took over from a checkpoint which
// was well on the same etcd: that parent looks for it in the wrong place.
func (w World) explains(d Dependency) bool {
	handoff, last := w.handoff(), w.state().Activation
	switch {
	case !d.Known:
		return false
	case d.Name != etcd || handoff == nil:
		return true
	case handoff.RollingBack:
		return false
	}
	wasWell := last != nil && last.ID == handoff.Activation && last.ServedBy != ""
	return !wasWell || !d.Answers && d.Since < handoff.At
}

// recovered is when the last of them was back; 0 if none is known.
func (w World) recovered() time.Duration {
	var last time.Duration
	for _, d := range w.After {
		if w.explains(d) && d.Answers {
			last = max(last, d.Since)
		}
	}
	return last
}

// excused tells whether a program that ends now may have ended for want of a
// dependency.
func (w World) excused() bool {
	return len(w.missing()) > 0 || w.recovered() != 0 && w.age(w.recovered()) < aftermath
}

// overdue tells whether something has lasted for too long that no dependency
// explains: each gets its whole time once all of them are back.
func (w World) overdue(since, timeout time.Duration) bool {
	return len(w.missing()) == 0 && w.age(max(since, w.recovered())) >= timeout
}

// waitsFor is a decision that would be another one if dependencies answered.
func waitsFor(d Decision, names []string) Decision {
	if len(names) > 0 {
		d.WaitingForDependencies = names
		d.Why += " waits-for=" + strings.Join(names, ",")
	}
	return d
}
