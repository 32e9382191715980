//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/lock"
	"github.com/stretchr/testify/require"
)

const program = binDir + "/pod-checkpointer"

// TestUninstall takes the daemon off the node, as the README says. While a daemon
// would write everything again, or a checkpoint serves, it removes nothing. Killed
// half way and run again it finishes. Of all that the API server notices nothing.
func TestUninstall(t *testing.T) {
	s := begin(t)
	daemon := s.daemonSet("pod-checkpointer")
	s.Cleanup(func() { // or no other scenario would begin
		s.applyBase(daemon)
		s.awaitSteady()
	})
	s.refuses("- the daemon kube-system/pod-checkpointer-")
	s.deleteBase()
	s.cutPower()
	s.await(soon, "the API, out of the checkpoint", byCheckpoint)
	s.refuses("- the checkpoint of " + workload + " serves (it holds " + lockPath + ")")
	s.awaitProtected() // by the static copy alone

	begun, serves := time.Now(), s.eyes.sight().serves
	plan := s.uninstall("--dry-run")
	requireInTurn(s, plan, "plan:", "remove "+copyFile, "remove "+stateDir, "leave  "+binDir, "leave  "+lockDir)
	require.FileExists(s, s.path(copyFile), "after a dry run")
	s.uninstallKilled("waiting for the end of kube-system/pod-checkpointer")
	require.NoFileExists(s, s.path(copyFile))
	require.NotEmpty(s, s.filesIn(stateDir), "what the second run is to remove")
	s.timeline.add(time.Now(), "uninstall killed half way")

	requireInTurn(s, s.uninstall(), "remove "+stateDir, "STAYS", installed+"  ", lockDir+"  ", program+"  ")
	require.Empty(s, s.filesIn(stateDir))
	require.Empty(s, s.filesIn(manifestDir))
	require.Empty(s, daemons(s.eyes.sight()), "containers of the daemon")
	require.NotContains(s, s.uninstall(), "\nremoved ", "a third run")
	s.timeline.add(time.Now(), "uninstalled")
	s.startsAgain("kube-scheduler")
	require.Equal(s, serves, s.eyes.sight().serves, "who holds the lock")
	require.Empty(s, s.eyes.awaySince(begun), "the API was away")
}

// deleteBase is kubectl delete -k manifests/base.
func (s *scene) deleteBase() {
	s.Helper()
	base := s.path("/run") + "/base"
	require.NoError(s, os.RemoveAll(base))
	require.NoError(s, os.CopyFS(base, os.DirFS("../../manifests/base")))
	s.kubectl("delete", "-k", "/run/base")
	s.noPods("pod-checkpointer")
	s.timeline.add(time.Now(), "manifests/base deleted")
}

// applyBase is kubectl apply -k manifests/base, with the lab's own DaemonSet.
func (s *scene) applyBase(daemon string) {
	s.Helper()
	rights, err := os.ReadFile("../../manifests/base/rbac.yaml")
	require.NoError(s, err)
	s.apply(string(rights))
	s.apply(daemon)
	s.timeline.add(time.Now(), "manifests/base applied")
}

// uninstall runs it on the node and returns what it said.
func (s *scene) uninstall(args ...string) string {
	s.Helper()
	out, err := s.lab.Exec(cluster.ctx, append([]string{program, "uninstall"}, args...)...)
	require.NoError(s, err, out)
	return out
}

// refuses asserts that it removes nothing, and gives that reason.
func (s *scene) refuses(why string) {
	s.Helper()
	_, err := s.lab.Exec(cluster.ctx, program, "uninstall")
	require.ErrorContains(s, err, "exit status 1")
	require.ErrorContains(s, err, "nothing was removed:\n")
	require.ErrorContains(s, err, why)
	require.FileExists(s, s.path(copyFile))
	require.NotEmpty(s, s.kept())
	s.timeline.add(time.Now(), "refused: %s…", why)
}

// uninstallKilled is uninstall that gets SIGKILL as soon as it has said that.
func (s *scene) uninstallKilled(at string) {
	s.Helper()
	ctx, kill := context.WithCancel(cluster.ctx)
	defer kill()
	cmd := exec.CommandContext(ctx, program, "uninstall")
	said := &trigger{word: at, fire: kill}
	cmd.Stdout, cmd.Stderr = said, said
	require.ErrorContains(s, s.lab.Run(cmd), "signal: killed", said.text)
}

// trigger fires once a word was written to it.
type trigger struct {
	word string
	fire func()
	text string
}

func (t *trigger) Write(p []byte) (int, error) {
	if t.text += string(p); strings.Contains(t.text, t.word) {
		t.fire()
	}
	return len(p), nil
}

// startsAgain ends who holds a lock, and waits until its next container has it.
func (s *scene) startsAgain(name string) {
	s.Helper()
	old, err := lock.Inspect("/proc", s.path(lockDir+"/"+name+".lock"))
	require.NoError(s, err)
	require.NotNil(s, old.Holder)
	require.NoError(s, lock.End(cluster.ctx, "/proc", *old.Holder, soon))
	s.await(soon, name+" to start again through lock-exec", func(sight) bool {
		holder, _ := s.lock(name)
		return holder.role == asParent && holder.container != old.Holder.ContainerID
	})
	s.timeline.add(time.Now(), "%s ended, and started again through lock-exec", name)
}

// filesIn are the files in a directory of the node.
func (s *scene) filesIn(dir string) []string {
	s.Helper()
	files, err := filepath.Glob(filepath.Join(s.path(dir), "*"))
	require.NoError(s, err)
	return files
}

// requireInTurn asserts that the lines of a text hold these, in this order.
func requireInTurn(s *scene, text string, want ...string) {
	s.Helper()
	rest := slices.Collect(strings.Lines(text))
	for _, what := range want {
		i := slices.IndexFunc(rest, func(line string) bool { return strings.Contains(line, what) })
		require.GreaterOrEqual(s, i, 0, "%q in its turn, of:\n%s", what, text)
		rest = rest[i+1:]
	}
}
