//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClientsServeFromCheckpoints: somebody deletes the DaemonSets of controller
// manager and scheduler. Their checkpoints stay, the same processes, for as long as
// nobody takes their place, and they are the real thing: the controller manager leads
// and makes the pods of a Deployment, and the scheduler finds them a node.
func TestClientsServeFromCheckpoints(t *testing.T) {
	s := begin(t)
	clients := controlPlane[1:]
	sets := map[string]string{}
	leases := map[string]lease{}
	for _, name := range clients {
		sets[name] = s.daemonSet(name)
		leases[name] = s.lease(name)
		require.NotEmpty(s, leases[name].HolderIdentity, "leader of "+name)
	}
	serve := s.holders()
	s.kubectl("delete", "daemonset", "--namespace=kube-system", clients[0], clients[1])
	s.timeline.add(time.Now(), "DaemonSets of %v deleted", clients)
	for _, name := range clients {
		s.await(eventually, name+" to serve out of its checkpoint", func(sight) bool {
			serve[name], _ = s.lock(name)
			return serve[name].role == asCheckpoint
		})
		s.await(eventually, name+" to lead out of its checkpoint", func(sight) bool {
			now := s.lease(name)
			return now.LeaseTransitions > leases[name].LeaseTransitions && now.RenewTime > leases[name].RenewTime
		})
		s.timeline.add(time.Now(), "%s leads out of its checkpoint", name)
	}
	s.kubectl("create", "deployment", "led", "--image="+pauseImage)
	s.awaitPods("led")
	require.Equal(s, serve, s.holders(), "who holds the locks")
	for _, name := range clients {
		require.Empty(s, s.pods(name), "pods of "+name)
	}
	s.timeline.add(time.Now(), "a Deployment has its pod, by the two checkpoints alone")
	s.kubectl("delete", "deployment", "led")

	for _, name := range clients {
		s.apply(sets[name])
	}
	s.timeline.add(time.Now(), "DaemonSets made again")
	s.awaitSteady()
}

// lease is what stands in the Lease by which the processes of a name elect a leader.
type lease struct {
	HolderIdentity   string
	LeaseTransitions int
	RenewTime        string
}

func (s *scene) lease(name string) (l lease) {
	s.Helper()
	text, err := s.lab.Kubectl(cluster.ctx, "get", "lease", name, "--namespace=kube-system", "--output=jsonpath={.spec}")
	if err != nil {
		return lease{} // the API server may just be changing hands
	}
	require.NoError(s, json.Unmarshal([]byte(text), &l))
	return l
}

// daemonSet is one as somebody would apply it.
func (s *scene) daemonSet(name string) string {
	s.Helper()
	var set map[string]any
	require.NoError(s, json.Unmarshal([]byte(s.kubectl("get", "daemonset", name, "--namespace=kube-system", "--output=json")), &set))
	delete(set, "status")
	set["metadata"] = map[string]any{"name": name, "namespace": "kube-system", "labels": map[string]string{"k8s-app": name}}
	text, err := json.Marshal(set)
	require.NoError(s, err)
	return string(text)
}

// apply makes an object, or makes it what the text says.
func (s *scene) apply(text string) {
	s.Helper()
	require.NoError(s, os.WriteFile(s.path("/run")+"/apply.json", []byte(text), 0o600))
	s.kubectl("apply", "--server-side", "--force-conflicts", "--filename=/run/apply.json")
}
