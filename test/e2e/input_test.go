//go:build e2e

package e2e

import (
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
	"github.com/stretchr/testify/require"
)

// TestBadInput: a source goes away. /healthz names it, nothing is removed and
// nothing started, and when it is back the same daemon goes on as before.
func TestBadInput(t *testing.T) {
	t.Run("runtime absent", func(t *testing.T) {
		s := begin(t)
		s.survives("runtime unknown: ",
			func() error { return s.lab.Stop(lab.Containerd) },
			func() error { return s.lab.Start(cluster.ctx, lab.Containerd) })
	})
	t.Run("runtime hung", func(t *testing.T) {
		s := begin(t)
		s.survives("runtime unknown: ",
			func() error { return s.lab.Signal(lab.Containerd, syscall.SIGSTOP) },
			func() error { return s.lab.Signal(lab.Containerd, syscall.SIGCONT) })
	})
	t.Run("static pod directory absent", func(t *testing.T) {
		s := begin(t)
		// The kubelet would take it for the end of all static pods, the daemon's
		// among them.
		require.NoError(s, s.lab.Kill(lab.Kubelet))
		defer func() { require.NoError(s, s.lab.Start(cluster.ctx, lab.Kubelet)) }()
		dir := s.path(manifestDir)
		s.survives("manifests unknown: ",
			func() error { return os.Rename(dir, dir+".away") },
			func() error { return os.Rename(dir+".away", dir) })
	})
	t.Run("permission withdrawn", func(t *testing.T) {
		s := begin(t)
		bind := func(account string) func() error {
			patch := `[{"op":"replace","path":"/subjects/0/name","value":"` + account + `"}]`
			return func() error {
				_, err := s.lab.Kubectl(cluster.ctx, "patch", "rolebinding", "pod-checkpointer", "--namespace=kube-system", "--type=json", "--patch="+patch)
				return err
			}
		}
		spoil := func() error {
			if err := bind("nobody")(); err != nil {
				return err
			}
			// At rest nothing but a change has it ask.
			_, err := s.lab.Kubectl(cluster.ctx, "label", "secret", "kube-scheduler", "--namespace=kube-system", "e2e=changed")
			return err
		}
		s.survives("api unknown: ", spoil, bind("pod-checkpointer"))
	})
}

// survives breaks a source, waits until /healthz says so, lets some beats pass,
// and mends it.
func (s *scene) survives(trouble string, spoil, mend func() error) {
	s.Helper()
	before, stored := s.eyes.sight(), s.stored()
	require.NoError(s, spoil())
	mended := false
	defer func() {
		if !mended {
			_ = mend() // the scenarios to come need it; this one has failed
		}
	}()
	s.timeline.add(time.Now(), "broken")
	said := ""
	s.await(soon, "/healthz to say: "+trouble, func(sight) bool { return s.healthz(trouble, &said) && said != "" })
	s.timeline.add(time.Now(), "/healthz: %s", said)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); s.rest("nothing") {
		now := s.eyes.sight()
		require.Equal(s, before.serves, now.serves, "who holds the lock")
		require.Empty(s, now.manifest, "a checkpoint was started")
	}
	require.Equal(s, stored, s.stored(), "what the store has")

	require.NoError(s, mend())
	mended = true
	s.timeline.add(time.Now(), "mended")
	s.await(soon, "/healthz not to say: "+trouble, func(sight) bool { return s.healthz(trouble, &said) && said == "" })
	after := s.awaitSteady()
	require.ElementsMatch(s, daemons(before), daemons(after), "the daemon's containers")
}

func daemons(s sight) []string {
	var out []string
	for id, name := range running(s.pods) {
		if name == "daemon" {
			out = append(out, id)
		}
	}
	return out
}

// healthz sets line to the one of /healthz that begins so, "" if there is none. It is
// false where the page is no 200, which would have the kubelet restart the daemon.
func (s *scene) healthz(prefix string, line *string) bool {
	client := &http.Client{Transport: &http.Transport{DialContext: s.lab.Dial, DisableKeepAlives: true}, Timeout: time.Second}
	answer, err := client.Get("http://127.0.0.1:10299/healthz")
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	*line = ""
	for text := range strings.Lines(string(page)) {
		if strings.HasPrefix(text, prefix) {
			*line = strings.TrimSpace(text)
		}
	}
	return err == nil && answer.StatusCode == http.StatusOK
}

// stored are the files of the generations.
func (s *scene) stored() []string {
	s.Helper()
	var out []string
	err := filepath.WalkDir(s.path("/var/lib/pod-checkpointer/workloads"), func(path string, e fs.DirEntry, err error) error {
		out = append(out, path)
		return err
	})
	require.NoError(s, err)
	return out
}
