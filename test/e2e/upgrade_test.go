//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
	"github.com/stretchr/testify/require"
)

const (
	stateDir  = "/var/lib/pod-checkpointer"
	installed = binDir + "/lock-exec"
	copyFile  = manifestDir + "/" + staticCopy
)

// TestUpgradeFromPrevious goes back to the version before and forth again, as the
// README says. Each daemon takes over what the other has left, gets the API server
// back out of it, and loses nothing of it. The way forth is gone while a checkpoint
// serves that the older daemon has started through the older lock-exec.
func TestUpgradeFromPrevious(t *testing.T) {
	s := begin(t)
	old, err := s.lab.Previous(cluster.ctx)
	if errors.Is(err, lab.ErrNoHistory) {
		t.Skip(err)
	}
	require.NoError(s, err)
	newLockExec, err := os.ReadFile(s.path(installed))
	require.NoError(s, err)
	oldLockExec, err := os.ReadFile(old.LockExec)
	require.NoError(s, err)
	daemon, kept := s.daemonSet("pod-checkpointer"), s.kept()

	s.goBack(old)
	s.await(soon, "the older daemon to lead", func(now sight) bool { return now.status != nil && now.status.Leader == "" })
	s.awaitProtected()
	require.Equal(s, kept, s.kept(), "what the older daemon found")
	s.survivesPowerCut(oldLockExec)
	require.Equal(s, kept, s.kept(), "what the older daemon left")

	apiServer := s.daemonSet("kube-apiserver")
	s.kubectl("delete", "daemonset", "--namespace=kube-system", "kube-apiserver", "--wait=false")
	s.timeline.add(time.Now(), "the API server's DaemonSet deleted")
	served := s.await(soon, "the API, out of the checkpoint", byCheckpoint).serves
	upgraded := time.Now()
	s.goForth(daemon, newLockExec)
	require.Equal(s, served, s.eyes.sight().serves, "who holds the lock")
	require.Empty(s, s.eyes.awaySince(upgraded), "the API was away")
	require.Equal(s, kept, s.kept(), "what the newer daemon found")

	s.apply(apiServer)
	s.timeline.add(time.Now(), "the API server's DaemonSet made again")
	now := s.waiter(newLockExec)
	require.Equal(s, served, now.serves, "who holds the lock, through the older lock-exec")
	s.awaitSteady()
	s.survivesPowerCut(newLockExec)
	s.awaitSteady()
	require.Equal(s, kept, s.kept(), "what the newer daemon left")
}

// goBack puts the earlier version in the place of this one, by the README's steps.
func (s *scene) goBack(old lab.Earlier) {
	s.Helper()
	s.kubectl("delete", "daemonset", "pod-checkpointer", "--namespace=kube-system")
	s.noPods("pod-checkpointer")
	s.timeline.add(time.Now(), "the daemon's DaemonSet is gone")
	s.replace(old.LockExec, installed)
	rights, err := os.ReadFile(old.RBAC)
	require.NoError(s, err)
	s.apply(string(rights))
	require.NoError(s, os.Remove(s.path(copyFile)))
	require.NoError(s, s.lab.PlacePrevious(cluster.ctx, old))
	s.timeline.add(time.Now(), "the older version is in place")
}

// goForth puts this version in the place of the earlier one, by the README's steps.
func (s *scene) goForth(daemon string, lockExec []byte) {
	s.Helper()
	s.applyBase(daemon)
	s.await(eventually, "the newer lock-exec to be installed", func(sight) bool {
		is, err := os.ReadFile(s.path(installed))
		return err == nil && bytes.Equal(is, lockExec)
	})
	s.await(soon, "the newer daemon to wait for the older one", func(sight) bool {
		leader, waiters := s.copies()
		return leader.role == asCheckpoint && len(waiters) == 1 && waiters[0].role == asParent
	})
	s.timeline.add(time.Now(), "the newer daemon waits for the older one")
	require.NoError(s, os.Remove(s.path(manifestDir+"/pod-checkpointer.yaml")))
	s.await(soon, "the newer daemon to lead, with its static copy in place", func(now sight) bool {
		return now.status != nil && now.status.StaticCopy == "up to date"
	})
	require.NoError(s, os.Remove(s.path("/etc/kubernetes/pod-checkpointer.conf")))
	s.timeline.add(time.Now(), "the newer daemon leads")
}

// survivesPowerCut cuts the power, and waits for the API, and until the parent has
// taken over, which starts through that lock-exec.
func (s *scene) survivesPowerCut(lockExec []byte) {
	s.Helper()
	s.cutPower()
	s.await(soon, "the API, out of the checkpoint", byCheckpoint)
	s.waiter(lockExec)
	s.awaitProtected()
}

// waiter waits until the API server's parent waits behind the checkpoint, and
// asserts that it does so through that lock-exec.
func (s *scene) waiter(lockExec []byte) sight {
	s.Helper()
	now := s.await(eventually, "the parent to wait behind the checkpoint", func(now sight) bool {
		return now.serves.role == asCheckpoint && len(now.waiters) > 0 && now.waiters[0].role == asParent
	})
	is, err := os.ReadFile(fmt.Sprintf("/proc/%d/exe", now.waiters[0].pid))
	require.NoError(s, err)
	require.True(s, bytes.Equal(lockExec, is), "the parent waits through the lock-exec of its time")
	return now
}

// replace puts a file of this machine in the place of one of the node, of which a
// reader finds the old one or the new one.
func (s *scene) replace(from, to string) {
	s.Helper()
	data, err := os.ReadFile(from)
	require.NoError(s, err)
	temp := s.path(to) + ".new"
	require.NoError(s, os.WriteFile(temp, data, 0o755))
	require.NoError(s, os.Rename(temp, s.path(to)))
}

// noPods waits until nothing of a DaemonSet is on the node.
func (s *scene) noPods(name string) {
	s.Helper()
	s.await(soon, "the pods of "+name+" to be gone", func(now sight) bool {
		for _, pod := range now.pods {
			if pod.Source == "api" && strings.HasPrefix(pod.Name, name) && anyRuns(pod) {
				return false
			}
		}
		return true
	})
}

// kept are the copies in the store, by their files, and which of them is known to be
// good. Nothing may be in quarantine.
func (s *scene) kept() map[string]string {
	s.Helper()
	dir := s.path(stateDir)
	for _, pattern := range []string{"quarantine/*", "workloads/*/*/quarantine/*"} {
		bad, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(s, err)
		require.Empty(s, bad, "quarantine")
	}
	out := map[string]string{}
	for _, pattern := range []string{"workloads/*/*/generations/*.json", "workloads/*/*/state.json"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(s, err)
		require.GreaterOrEqual(s, len(files), len(controlPlane), pattern)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(s, err)
			if filepath.Base(file) == "state.json" {
				var state struct{ Body struct{ KnownGood int64 } }
				require.NoError(s, json.Unmarshal(text, &state))
				require.NotZero(s, state.Body.KnownGood, file)
				text = fmt.Append(nil, "known good: ", state.Body.KnownGood)
			}
			out[strings.TrimPrefix(file, dir)] = string(text)
		}
	}
	return out
}
