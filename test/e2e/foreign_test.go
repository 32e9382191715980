//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/stretchr/testify/require"
)

// TestForeignFilesStay: whatever else lies in the static pod directory is not
// ours, and stays the very file that it is through a reboot and a handoff.
func TestForeignFilesStay(t *testing.T) {
	s := begin(t)
	dir := s.path(manifestDir)
	for name, text := range map[string]string{
		"README":          "Put static pods here.\n",
		".hidden":         "a note to myself\n",
		".other.yaml.swp": "b0VIM 8.2",
		// Somebody looks at a manifest of ours with an editor.
		".pod-checkpointer-kube-system.kube-apiserver.json.swp": "b0VIM 8.2",
		"broken.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: [\n",
		"empty.yaml":  "",
		"other.yaml": `apiVersion: v1
kind: Pod
metadata: {name: other, namespace: default}
spec: {containers: [{name: other, image: ` + pauseImage + `}]}
`,
	} {
		path := filepath.Join(dir, name)
		require.NoFileExists(s, path)
		require.NoError(s, os.WriteFile(path, []byte(text), 0o640))
		s.Cleanup(func() { _ = os.Remove(path) }) // the lab's disk, which goes
	}
	before := s.foreign(dir)

	s.cutPower()
	s.await(soon, "the API, out of the checkpoint", byCheckpoint)
	require.Equal(s, before, s.foreign(dir), "after the start of the checkpoint")
	now := s.awaitSteady()
	require.Equal(s, before, s.foreign(dir), "after the handoff")
	require.True(s, runsOther(now.pods), "the other static pod runs")
}

// file is all of a file that a write, a replacement or a chmod would change.
type file struct {
	content        string
	mode           os.FileMode
	inode          uint64
	written, moved syscall.Timespec
}

// foreign are the files that are no checkpoints.
func (s *scene) foreign(dir string) map[string]file {
	s.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(s, err)
	out := map[string]file{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if of, _ := activationIn(path); of != "" {
			continue
		}
		content, err := os.ReadFile(path)
		require.NoError(s, err)
		info, err := os.Stat(path)
		require.NoError(s, err)
		stat := info.Sys().(*syscall.Stat_t)
		out[e.Name()] = file{string(content), info.Mode(), stat.Ino, stat.Mtim, stat.Ctim}
	}
	return out
}

func runsOther(pods []cri.Pod) bool {
	for _, pod := range pods {
		c, ok := pod.Container("other")
		if strings.HasPrefix(pod.Name, "other-") && ok && c.State == cri.Running {
			return true
		}
	}
	return false
}
