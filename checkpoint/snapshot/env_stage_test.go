package snapshot

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

const printing = "print" // the program of the containers here: it says what it got

// stage is where the processes of this test run.
type stage struct {
	path     string // the directory of the programs, which all say what they got
	lockExec string // the real one
}

func newStage(t *testing.T) stage {
	t.Helper()
	s := stage{path: t.TempDir(), lockExec: filepath.Join(t.TempDir(), lockExec)}
	for file, source := range map[string]string{s.lockExec: "../../cmd/lock-exec", filepath.Join(s.path, printing): "./testdata/print"} {
		build := exec.Command("go", "build", "-o", file, source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.NoError(t, os.Symlink(printing, filepath.Join(s.path, lockExec)))
	return s
}

// run executes lock-exec, if that is the program, until it has become another one.
// mounts are where the paths in its flags are.
func (s stage) run(t *testing.T, p process, mounts map[string]string) process {
	t.Helper()
	if filepath.Base(p.argv[0]) != lockExec || len(p.argv) > 1 && p.argv[1] == "check" {
		return p
	}
	cmd := exec.Command(s.lockExec)
	cmd.Args = []string{lockExec}
	flags := true
	for _, word := range p.argv[1:] {
		flags = flags && word != "--"
		for path, at := range mounts {
			if flags {
				word = strings.ReplaceAll(word, path, at)
			}
		}
		cmd.Args = append(cmd.Args, word)
	}
	cmd.Env = []string{} // nil would be this test's
	for name, value := range p.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%q: %s", p.argv, stderr.String())
	var said [2][][]byte
	require.NoError(t, json.Unmarshal(out, &said))
	got := process{env: map[string]string{}}
	for _, word := range said[0] {
		got.argv = append(got.argv, string(word))
	}
	for _, entry := range said[1] {
		name, value, _ := strings.Cut(string(entry), "=")
		got.env[name] = value
	}
	return got
}

// processes are all that a kubelet starts in a container, by what for.
func (s stage) processes(t *testing.T, k kubelet, c *v1.Container, image Image, mounts map[string]string) (map[string]process, error) {
	t.Helper()
	imageEnv := map[string]string{"PATH": s.path, "IMAGE": "of the image", "HOME": "/root"}
	first, err := k.start(c, image, imageEnv)
	if err != nil {
		return nil, err
	}
	all := map[string]process{"command": s.run(t, first, mounts)}
	for name, p := range map[string]*v1.Probe{"liveness": c.LivenessProbe, "readiness": c.ReadinessProbe, "startup": c.StartupProbe} {
		if p != nil && p.Exec != nil {
			all[name] = s.run(t, k.probe(c, p.Exec.Command, first.env), mounts)
		}
	}
	if c.Lifecycle != nil {
		for name, h := range map[string]*v1.LifecycleHandler{"postStart": c.Lifecycle.PostStart, "preStop": c.Lifecycle.PreStop} {
			if h != nil && h.Exec != nil {
				all[name] = s.run(t, process{h.Exec.Command, first.env}, mounts)
			}
		}
	}
	// A check of a lock over the network makes no use of its environment.
	for name, p := range all {
		if line, ok := checkLine(p.argv); ok && line.rest[0] != "exec" {
			all[name] = process{argv: p.argv[1:]}
		}
	}
	return all, nil
}

// compare says whether the processes of the checkpoint are those of the parent, and
// that no secret is in the manifest or in an error.
func (s stage) compare(t *testing.T, pod *v1.Pod, o Objects) (*Snapshot, error) {
	t.Helper()
	parent := kubelet{
		objects:  o,
		services: map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443", "KUBERNETES_PORT": "tcp://10.0.0.1:443"},
		fields:   map[string]string{"status.podIP": "10.1.1.1", "limits.cpu": "2", "metadata.uid": "1f", "metadata.name": pod.Name, "metadata.labels['a']": "", "spec.nodeName": "node"},
		files:    map[string]string{"scratch/env:KEY": "of a $(PASSWORD) file $$"},
	}
	static := parent
	static.objects, static.services = Objects{}, nil // as at boot
	snap, err := Take(pod, o, config)
	if err != nil {
		assert.NotContains(t, err.Error(), "S3CR3T")
		return nil, err
	}
	paths := map[string]string{}
	mounts := map[string]string{"/lock/web.lock": filepath.Join(t.TempDir(), "web.lock")}
	for _, v := range snap.Volumes {
		dir := t.TempDir()
		paths[v.Name], mounts[envMount] = dir, dir
		for _, f := range v.Files {
			require.EqualValues(t, 0o444, f.Mode)
			require.NoError(t, os.WriteFile(filepath.Join(dir, f.Path), f.Data, 0o600))
		}
	}
	manifest, err := Manifest(snap.Pod, activation, "node", 1, paths)
	require.NoError(t, err)
	assert.NotContains(t, string(manifest), "S3CR3T")
	var started v1.Pod
	require.NoError(t, json.Unmarshal(manifest, &started))

	c := &pod.Spec.Containers[0]
	want, err := s.processes(t, parent, c, o.Images[c.Image], mounts)
	require.NoError(t, err, "the parent can't start")
	got, err := s.processes(t, static, &started.Spec.Containers[0], o.Images[c.Image], mounts)
	require.NoError(t, err, "the checkpoint can't start")
	for name := range want {
		for service := range parent.services {
			if _, told := got[name].env[service]; !told {
				delete(want[name].env, service) // nobody asked for it
			}
		}
	}
	assert.Equal(t, want, got)
	return snap, nil
}
