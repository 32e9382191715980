package sim

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// scene plays what a story comes to only now and then, on five nodes on which nothing
// else happens.
func scene(t *testing.T, settles time.Duration, play func(n *node) error) {
	for seed := range int64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			var trace bytes.Buffer
			n := newNode(seed, false, &trace)
			n.calm, n.settles = true, settles
			err := n.until("all are known-good", installed, (*node).proved)
			if err == nil {
				err = play(n)
			}
			require.NoError(t, err, "%s", &trace)
			require.Empty(t, n.rules.violation, "%s", &trace)
		})
	}
}

// lets lets so much time pass.
func (n *node) lets(pass time.Duration) {
	for end := n.now + pass; n.now < end; n.step() {
		continue
	}
}

// waits tells whether a parent of this version stands in line behind a checkpoint
// that is ready, and is saved.
func (n *node) waits(workload string, version int) bool {
	f := n.locks[lockOf(workload)]
	if f == nil || len(f.queue) < 2 || !f.queue[0].container.pod.ours || f.queue[0].readyAt == 0 {
		return false
	}
	parent := f.queue[1].container.pod
	record, _ := n.daemon.store.Workload(store.Key{Namespace: namespace, Workload: workload})
	return parent.role() == "parent" && parent.version == version && record.Generations[0].Source.PodUID == string(parent.UID)
}

// alone tells whether a parent of this version is ready, and nothing else of the
// workload is there.
func (n *node) alone(workload string, version int) bool {
	all := append(n.containers(workload, "parent"), n.containers(workload, "checkpoint")...)
	return len(all) == 1 && n.activations()[workload] == nil && n.readyIn(workload, "parent") && all[0].pod.version == version
}

// A rolling update of everything, one after the other, with a single API server: the
// old parent's copy stands in until the new parent is there, and none of the old
// version is left.
func TestRollingUpdates(t *testing.T) {
	scene(t, 0, func(n *node) error {
		for _, w := range workloads {
			n.set(w).change(good)
			away := time.Duration(0)
			err := n.until(w+" is updated", 5*time.Minute, func(n *node) bool {
				if !n.apiUp() {
					away += step
				}
				return n.alone(w, 1)
			})
			if err != nil {
				return err
			}
			if limit := 20 * time.Second; away > limit { // two starts of at most 4 s, and what leads to them
				return fmt.Errorf("the update of %s took the API server away for %s", w, away)
			}
			if w != server && away > 0 {
				return fmt.Errorf("the update of %s took the API server away", w)
			}
		}
		n.lets(2 * time.Minute)
		for _, w := range workloads {
			record, _ := n.daemon.store.Workload(store.Key{Namespace: namespace, Workload: w})
			if record.State.KnownGood != record.Generations[0].Seq || !n.alone(w, 1) {
				return fmt.Errorf("%s is not at rest with its new version", w)
			}
		}
		return nil
	})
}

// Somebody takes the manifest away in the middle of a rolling update.
func TestNoOldCopyStartsBesideANewParent(t *testing.T) {
	scene(t, time.Minute, func(n *node) error {
		n.set(server).change(good)
		if err := n.until("the new parent waits", 5*time.Minute, func(n *node) bool { return n.waits(server, 1) }); err != nil {
			return err
		}
		n.loseManifest()
		return n.until("the new parent serves", 5*time.Minute, func(n *node) bool { return n.alone(server, 1) })
	})
}

// A kubelet that was restarted and does not reach the API server could not stop the
// checkpoint that it has started.
func TestNothingIsHandedOverUnderAnUnsyncedKubelet(t *testing.T) {
	scene(t, time.Minute, func(n *node) error {
		n.set(server).change(good)
		if err := n.until("the new parent waits", 5*time.Minute, func(n *node) bool { return n.waits(server, 1) }); err != nil {
			return err
		}
		n.cutOff = n.now + time.Minute
		n.restartKubelet(time.Second)
		n.lets(50 * time.Second)
		if !n.readyIn(server, "checkpoint") {
			return fmt.Errorf("the checkpoint does not serve any more")
		}
		return n.until("the new parent serves", 5*time.Minute, func(n *node) bool { return n.alone(server, 1) })
	})
}

// A parent that fails, however it does, gets its tries one, two, four minutes apart.
func TestAParentThatFailsGetsFewTries(t *testing.T) {
	for _, program := range []program{sleeps, exits} {
		t.Run(string(program), func(t *testing.T) {
			scene(t, 0, func(n *node) error {
				n.set(scheduler).change(program)
				tries := 0
				n.lets(30 * time.Minute)
				for _, h := range n.rules.handed {
					tries = max(tries, h.times)
				}
				if tries < 3 || tries > 6 {
					return fmt.Errorf("%d tries in half an hour", tries)
				}
				n.heal()
				return n.until("a good parent serves", rested, (*node).rests)
			})
		})
	}
}
