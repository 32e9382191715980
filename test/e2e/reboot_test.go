//go:build e2e

package e2e

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var cuts = flag.Int("cuts", 3, "how often TestReboot cuts the power")

// TestReboot: the power of the only master is cut, again and again, and the API
// is back each time without a hand. Then the parent takes over and nothing of
// the checkpoint stays.
func TestReboot(t *testing.T) {
	s := begin(t)
	s.kubectl("create", "deployment", "before", "--image="+pauseImage)
	s.awaitPods("before")

	var checkpoints []string
	for range *cuts {
		s.cutPower()
		now := s.await(soon, "the API, out of the checkpoint", byCheckpoint)
		checkpoints = append(checkpoints, now.serves.uid)
	}
	s.awaitSteady()
	s.shortGoodbye()

	s.awaitPods("before")
	s.kubectl("create", "deployment", "after", "--image="+pauseImage)
	s.awaitPods("after")
	s.timeline.add(time.Now(), "Deployments: the one before is there, a new one has its pod")
	s.kubectl("delete", "deployment", "before", "after")

	for _, uid := range checkpoints {
		require.Empty(s, processesOf(uid), "processes of the checkpoint %s", uid)
	}
	if *cuts == 1 {
		return // another run sees to what takes long
	}
	// The kubelet and the daemon each clean up once a minute.
	s.await(eventually, "no activation to be left on disk", func(sight) bool {
		left, err := os.ReadDir(s.path("/var/lib/pod-checkpointer/activations"))
		return err == nil && len(left) == 0
	})
	s.timeline.add(time.Now(), "nothing is left of the checkpoints")
}

// shortGoodbye asserts that the daemon ended the checkpoint itself. The kubelet,
// which sees the removal too, gives it two seconds at least, in which it would
// keep the lock and serve nobody (k8s.io/kubernetes@v1.37.2
// pkg/kubelet/kuberuntime/kuberuntime_container.go, minimumGracePeriodInSeconds).
func (s *scene) shortGoodbye() {
	s.Helper()
	told, ok := s.timeline.last(toldToGo)
	require.True(s, ok, "the checkpoint was told to go")
	moved, ok := s.timeline.last(asParent + tookLock)
	require.True(s, ok, "the parent took the lock")
	require.Less(s, moved.Sub(told), 1500*time.Millisecond, "from the manifest's removal to the parent's lock")
}

// awaitPods waits until a Deployment has all of its pods.
func (s *scene) awaitPods(deployment string) {
	s.Helper()
	s.kubectl("rollout", "status", "deployment/"+deployment, "--timeout="+eventually.String())
}
