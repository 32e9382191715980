package sim

import (
	"fmt"
	"testing"
	"time"
)

// stands leads to a checkpoint of the server that serves, with the next parent behind it.
func (n *node) stands() error {
	for _, pod := range n.cluster.pods {
		if pod.OwnerReferences[0].Name == server {
			n.cluster.delete(pod, n.now)
		}
	}
	return n.until("the next parent waits", 5*time.Minute, func(n *node) bool {
		return n.readyIn(server, "checkpoint") && len(n.locks[lockPath].queue) > 1 && n.fresh()
	})
}

// A Secret that changes while a checkpoint serves reaches it, and restarts nothing; one
// that is only told anew writes nothing.
func TestASecretChangesWhileACheckpointServes(t *testing.T) {
	scene(t, time.Hour, func(n *node) error {
		if err := n.stands(); err != nil {
			return err
		}
		holder, activation := n.locks[lockPath].holder(), n.activations()[server].activation()
		for range 7 { // more than are kept
			n.newSecret()
			if err := n.until("the checkpoint has it", 20*time.Second, (*node).fresh); err != nil {
				return err
			}
		}
		n.lets(5 * time.Second)
		writes := n.writes
		for range 60 {
			n.tellAnew()
			n.lets(2 * time.Second)
		}
		if n.writes != writes {
			return fmt.Errorf("%d calls to the disk for a Secret that is the same", n.writes-writes)
		}
		if n.locks[lockPath].holder() != holder || n.activations()[server].activation() != activation {
			return fmt.Errorf("the checkpoint was restarted")
		}
		return nil
	})
}

// So it is with a daemon that is killed, or a power cut, at any call to the disk.
func TestARefreshIsFinishedByTheNextPass(t *testing.T) {
	for name, cut := range map[string]interrupt{
		"killed":    (*node).killDaemon,
		"power cut": func(n *node) { n.powerCut(5 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, 10*time.Hour, func(n *node) error {
				if err := n.stands(); err != nil {
					return err
				}
				activation := n.activations()[server].activation()
				for range 12 {
					n.newSecret()
					if err := n.until("it is saved", 20*time.Second, (*node).savedNewest); err != nil {
						return err
					}
					n.cutAfter, n.cut = 1+n.rng.IntN(80), cut
					if err := n.until("the checkpoint has it", 3*time.Minute, (*node).fresh); err != nil {
						return err
					}
					if n.activations()[server].activation() != activation {
						return fmt.Errorf("another checkpoint was started")
					}
				}
				return nil
			})
		})
	}
}

// savedNewest tells whether the Secret as it is now is on disk.
func (n *node) savedNewest() bool {
	for _, w := range n.daemon.store.Workloads() {
		if w.Key.Workload == server {
			return n.saved(w.Generations[0]) == string(n.cluster.payload())
		}
	}
	return false
}
