package sim

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Bounds of what must be reached.
const (
	installed = 3 * time.Minute  // both workloads are protected by a generation that is known to be good
	broken    = 8 * time.Minute  // so long the node is broken, every gap
	gap       = 20 * time.Second // on the average
	served    = 5 * time.Minute  // after the faults have stopped somebody serves
	rested    = 45 * time.Minute // and the parent does, with nothing of ours beside it: two backoffs of the longest kind
	rebooted  = 2 * time.Minute  // somebody serves after a power cut alone
)

// Play plays the story of one seed and returns what went wrong, with the trace.
// In a story of a forgetful daemon nothing has to be reached, as it can't tell
// how long anything takes; it must break no rule.
func Play(seed int64, forgetful bool, out io.Writer) (err error) {
	n := newNode(seed, forgetful, out)
	defer func() {
		if err == nil && n.rules.violation != "" {
			err = fmt.Errorf("%s", n.rules.violation)
		}
		if err != nil {
			err = fmt.Errorf("seed %d, after %s: %w\n%s", seed, n.now, err, n.trace.tail(70))
		}
	}()
	if err := n.until("both workloads are known-good", installed, (*node).proved); err != nil && !forgetful {
		return err
	}
	for end := n.now + broken; n.now < end && n.rules.violation == ""; n.step() {
		if n.now >= n.booted && n.rng.Int64N(int64(gap/step)) == 0 {
			n.breakDown()
		}
	}
	n.heal()
	if forgetful {
		return nil
	}
	if err := n.until("somebody serves", served, (*node).serves); err != nil {
		return err
	}
	if err := n.until("the parents serve alone", rested, (*node).rests); err != nil {
		return err
	}
	n.powerCut(5 * time.Second)
	if err := n.until("somebody serves after a power cut", rebooted, (*node).serves); err != nil {
		return err
	}
	return n.until("the parents serve alone after a power cut", rested, (*node).rests)
}

// until lets time pass until something is so.
func (n *node) until(what string, bound time.Duration, so func(*node) bool) error {
	for end := n.now + bound; n.now < end && n.rules.violation == ""; n.step() {
		if so(n) {
			n.trace.say("REACHED %s", what)
			return nil
		}
	}
	if n.rules.violation != "" {
		return fmt.Errorf("%s", n.rules.violation)
	}
	return fmt.Errorf("not reached within %s: %s\n%s", bound, what, n.status())
}

// proved tells whether the newest generation of each workload is known-good.
func (n *node) proved() bool {
	if n.daemon.store == nil {
		return false
	}
	records := n.daemon.store.Workloads()
	for _, w := range records {
		if len(w.Generations) == 0 || w.State.KnownGood == 0 {
			return false
		}
	}
	return len(records) == len(workloads)
}

// serves tells whether each workload has somebody who is ready.
func (n *node) serves() bool {
	for _, w := range workloads {
		if !n.readyIn(w, "parent") && !n.readyIn(w, "checkpoint") {
			return false
		}
	}
	return true
}

func (n *node) readyIn(workload, role string) bool {
	for _, c := range n.containers(workload, role) {
		if c.process != nil && c.process.readyAt != 0 {
			return true
		}
	}
	return false
}

// rests tells whether the parents are ready and nothing of ours is left.
func (n *node) rests() bool {
	if n.daemon.store == nil || len(n.activations()) > 0 {
		return false
	}
	for _, w := range n.daemon.store.Workloads() {
		name := w.Key.Workload
		if n.open(w.State.Handoff) || !n.readyIn(name, "parent") || len(n.containers(name, "checkpoint")) > 0 {
			return false
		}
	}
	return true
}

// status is what the daemon says of itself.
func (n *node) status() string {
	if n.daemon.loop == nil || n.daemon.loop.Status() == nil {
		return "daemon: down"
	}
	var b strings.Builder
	for _, w := range n.daemon.loop.Status().Workloads {
		fmt.Fprintf(&b, "%s %s for %s: %s holder=%s next=%s ready=%s activation=%s error=%s\n",
			w.Workload, w.State, w.For, w.Why, w.Holder, w.Next, w.Ready, w.Activation, w.Error)
	}
	return b.String()
}
