package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri/critest"
)

// UIDs of pods, as a cgroup tells them.
const (
	copyUID       = "0123456789abcdef0123456789abcdef"
	checkpointUID = "11111111111111111111111111111111"
	parentUID     = "22222222-2222-2222-2222-222222222222"
	daemonUID     = "33333333-3333-3333-3333-333333333333"
)

// site is a node on which pod-checkpointer was in use: real files and a runtime on
// a socket. Its procfs is made up, since the holders of locks are processes of pods.
type site struct {
	t       *testing.T
	dir     string
	runtime *critest.Server
	locked  int
}

func newSite(t *testing.T) *site {
	s := &site{t: t, dir: t.TempDir(), runtime: critest.Start(t)}
	for _, dir := range []string{"manifests", "state", "locks", "bin", "proc/sys/kernel/random"} {
		require.NoError(t, os.MkdirAll(s.in(dir), 0o700))
	}
	s.write("proc/locks", "")
	s.write("proc/sys/kernel/random/boot_id", "boot\n")
	s.write("bin/lock-exec", "program")
	s.write("bin/pod-checkpointer", "program")
	s.write("locks/kube-apiserver.lock", "")
	s.write("state/kubeconfig", "credentials")
	s.write("state/payloads/digest/payload.json", "secret")
	s.write("manifests/etcd.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd}\n")
	return s
}

func (s *site) in(name string) string { return filepath.Join(s.dir, name) }

func (s *site) write(name, data string) {
	s.t.Helper()
	require.NoError(s.t, os.MkdirAll(filepath.Dir(s.in(name)), 0o700))
	require.NoError(s.t, os.WriteFile(s.in(name), []byte(data), 0o600))
}

func (s *site) read(name string) string {
	s.t.Helper()
	data, err := os.ReadFile(s.in(name))
	require.NoError(s.t, err)
	return string(data)
}

func (s *site) run(args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = run(s.t.Context(), append([]string{"uninstall", "--node-name=master-1", "--cri-endpoint=" + s.runtime.Endpoint(),
		"--static-pod-dir=" + s.in("manifests"), "--state-dir=" + s.in("state"), "--lock-dir=" + s.in("locks"),
		"--bin-dir=" + s.in("bin"), "--proc=" + s.in("proc")}, args...), func(string) string { return "" }, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// pod has the runtime show a pod that runs.
func (s *site) pod(name, uid, source string, annotations ...string) {
	a := map[string]string{"kubernetes.io/config.source": source}
	for i := 0; i < len(annotations); i += 2 {
		a["pod-checkpointer.io/"+annotations[i]] = annotations[i+1]
	}
	s.runtime.Run(critest.Sandbox{ID: uid, Namespace: "kube-system", Name: name, UID: uid, Ready: true, Annotations: a},
		critest.Container{ID: uid, Name: "main", State: runtimeapi.ContainerState_CONTAINER_RUNNING})
}

// holds has the kernel's table show that a process of a pod holds a file.
func (s *site) holds(file, uid string) {
	s.t.Helper()
	s.locked++
	pid := 1000 + s.locked
	info, err := os.Stat(s.in(file))
	require.NoError(s.t, err)
	stat := info.Sys().(*syscall.Stat_t)
	table, err := os.ReadFile(s.in("proc/locks"))
	require.NoError(s.t, err)
	line := fmt.Sprintf("%d: FLOCK  ADVISORY  WRITE %d %02x:%02x:%d 0 EOF\n", s.locked, pid, stat.Dev>>8&0xfff, stat.Dev&0xff, stat.Ino)
	s.write("proc/locks", string(table)+line)
	base := fmt.Sprintf("proc/%d/", pid)
	s.write(base+"cgroup", "0::/kubepods/pod"+uid+"/"+strings.Repeat("a", 64)+"\n")
	s.write(base+"stat", fmt.Sprintf("%d (program) S%s\n", pid, strings.Repeat(" 1", 30)))
	// Where the file system tells stat another device, its descriptors are looked at.
	require.NoError(s.t, os.MkdirAll(s.in(base+"fd"), 0o700))
	require.NoError(s.t, os.Symlink(s.in(file), s.in(base+"fd/3")))
}

func (s *site) copy() {
	s.write("manifests/"+kubelet.CopyFile, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod-checkpointer-static",
		"namespace": "kube-system", "annotations": {"pod-checkpointer.io/copy-of": "kube-system/pod-checkpointer"}}}`)
	s.pod("pod-checkpointer-static-master-1", copyUID, "file", "copy-of", "kube-system/pod-checkpointer", "format", "1")
}

func (s *site) checkpoint() {
	s.write("manifests/"+checkpointFile, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kube-apiserver-checkpoint",
		"namespace": "kube-system", "annotations": {"pod-checkpointer.io/checkpoint-of": "kube-system/kube-apiserver",
		"pod-checkpointer.io/generation": "1", "pod-checkpointer.io/lock": "kube-apiserver"}}}`)
	s.pod("kube-apiserver-checkpoint-master-1", checkpointUID, "file", "checkpoint-of", "kube-system/kube-apiserver", "lock", "kube-apiserver")
}

const checkpointFile = "pod-checkpointer-kube-system.kube-apiserver.json"

func (s *site) parent() {
	s.pod("kube-apiserver-x7k2p", parentUID, "api", "checkpoint", "true", "lock", "kube-apiserver")
}

// kubelet ends the pods whose manifests are gone, until the test ends. Before it ends
// the first one, meanwhile happens.
func (s *site) kubelet(meanwhile ...func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		beat := time.NewTicker(10 * time.Millisecond)
		defer beat.Stop()
		for _, pod := range [][2]string{{kubelet.CopyFile, copyUID}, {checkpointFile, checkpointUID}} {
			for exists(s.in("manifests/" + pod[0])) {
				select {
				case <-s.t.Context().Done():
					return
				case <-beat.C:
				}
			}
			for _, happens := range meanwhile {
				happens()
			}
			meanwhile = nil
			s.runtime.Remove(pod[1])
		}
	}()
	s.t.Cleanup(func() { <-done })
}

// files are all that is on the site's disk.
func (s *site) files() (all []string) {
	require.NoError(s.t, filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if name, _ := filepath.Rel(s.dir, path); err == nil && !d.IsDir() && !strings.HasPrefix(name, "proc/") {
			all = append(all, name)
		}
		return err
	}))
	return all
}

func TestUninstallUnpinsWhatWePinned(t *testing.T) {
	s := newSite(t)
	s.runtime.Images("ours:1", "theirs:1")
	s.pod("other", "other", "api")
	s.runtime.Label("sha256:ours:1", "io.cri-containerd.pinned", "pinned")
	s.runtime.Label("sha256:ours:1", "pod-checkpointer.io/pinned", "true")
	s.runtime.Label("sha256:theirs:1", "io.cri-containerd.pinned", "pinned")
	code, out, errs := s.run()
	require.Zero(t, code, errs)
	require.Contains(t, out, "unpinned image sha256:ours:1\n")
	require.NotContains(t, s.runtime.Labels("sha256:ours:1"), "io.cri-containerd.pinned")
	require.Contains(t, s.runtime.Labels("sha256:theirs:1"), "io.cri-containerd.pinned")
}

func TestUninstallLeavesNothingOfOurs(t *testing.T) {
	s := newSite(t)
	s.copy()
	s.kubelet(func() { <-time.After(300 * time.Millisecond) }) // longer than it takes to look
	code, out, errs := s.run()
	require.Zero(t, code, out+errs)
	require.Equal(t, []string{"manifests/etcd.yaml"}, s.files())
	for _, dir := range []string{"state", "locks", "bin"} {
		require.NoDirExists(t, s.in(dir))
	}
	require.Contains(t, out, "remove "+s.in("manifests/pod-checkpointer.json")+", the daemon's static copy")
	require.Contains(t, out, "waiting for the end of kube-system/pod-checkpointer-static-master-1\n")
	require.Contains(t, out, "removed "+s.in("state")+"\n")
	require.True(t, strings.HasSuffix(out, "nothing of pod-checkpointer is left on this node\n"), out)

	code, out, errs = s.run()
	require.Zero(t, code, out+errs)
	require.Equal(t, "plan:\nnothing of pod-checkpointer is left on this node\n", out, "a second time there is nothing to do")
}

// The API server goes on, and starts again through lock-exec whenever it must.
func TestUninstallLeavesLockExecWhileAPodStartsThroughIt(t *testing.T) {
	s := newSite(t)
	s.copy()
	s.checkpoint() // which waits behind its parent
	s.parent()
	s.holds("locks/kube-apiserver.lock", parentUID)
	s.kubelet()
	code, out, errs := s.run()
	require.Zero(t, code, out+errs)
	left := []string{"bin/lock-exec", "bin/pod-checkpointer", "locks/kube-apiserver.lock", "manifests/etcd.yaml"}
	require.Equal(t, left, s.files())
	require.Regexp(t, `STAYS +BECAUSE\n`+s.in("bin/lock-exec")+` +of use to kube-system/kube-apiserver-x7k2p\n`+
		s.in("locks")+` +of use to kube-system/kube-apiserver-x7k2p\n`+s.in("bin/pod-checkpointer")+` +run its uninstall again`, out)

	s.write("proc/locks", "")
	s.runtime.Remove(parentUID)
	s.write("manifests/web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{command: [/opt/pod-checkpointer/bin/lock-exec]}]}\n")
	code, out, _ = s.run()
	require.Zero(t, code)
	require.Regexp(t, `bin/lock-exec +of use to default/web-master-1\n`, out)

	require.NoError(t, os.Remove(s.in("manifests/web.yaml")))
	code, _, errs = s.run()
	require.Zero(t, code, errs)
	require.Equal(t, []string{"manifests/etcd.yaml"}, s.files())
}

func TestUninstallRefusesAndRemovesNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		given func(*site)
		says  string
	}{
		"a pod of the DaemonSet is there": {func(s *site) {
			s.pod("pod-checkpointer-x7k2p", daemonUID, "api", "format", "1")
		}, "- the daemon kube-system/pod-checkpointer-x7k2p is on this node and would write everything again: kubectl delete -k manifests/base, wait until the pod is gone, and run this again"},
		"a pod from the API leads": {func(s *site) {
			s.write("state/lock", "")
			s.pod("other-x7k2p", daemonUID, "api")
			s.holds("state/lock", daemonUID)
		}, "- the daemon kube-system/other-x7k2p is on this node"},
		"another static pod leads": {func(s *site) {
			s.write("state/lock", "")
			s.pod("mine-master-1", daemonUID, "file")
			s.holds("state/lock", daemonUID)
		}, "- the static pod kube-system/mine-master-1, which the daemon did not write, uses"},
		"a process that is no pod leads": {func(s *site) {
			s.write("state/lock", "")
			s.holds("state/lock", daemonUID)
			s.write("proc/1001/cgroup", "0::/user.slice\n")
		}, "- process 1001 uses"},
		"a checkpoint serves": {func(s *site) {
			s.checkpoint()
			s.holds("locks/kube-apiserver.lock", checkpointUID)
		}, "- the checkpoint of kube-system/kube-apiserver serves (it holds "},
		"a checkpoint serves that was told to go": {func(s *site) {
			s.checkpoint()
			s.holds("locks/kube-apiserver.lock", checkpointUID)
			require.NoError(s.t, os.Remove(s.in("manifests/"+checkpointFile)))
		}, "- the checkpoint of kube-system/kube-apiserver serves (it holds "},
		"a checkpoint starts": {(*site).checkpoint,
			"- the checkpoint of kube-system/kube-apiserver is being started ("},
		"a checkpoint without a lock runs": {func(s *site) {
			s.pod("web-checkpoint-master-1", checkpointUID, "file", "checkpoint-of", "kube-system/web")
		}, "- the checkpoint of kube-system/web runs, and has no lock to tell"},
		"a handoff is open": {func(s *site) {
			s.handoff("boot")
		}, "- kube-system/kube-apiserver is being handed over: wait until /status says Protected"},
		"the runtime is silent": {func(s *site) { s.runtime.Fail(codes.Unavailable) },
			"which pods run is not known: "},
		"the runtime lists too little": {func(s *site) {
			s.holds("locks/kube-apiserver.lock", parentUID)
		}, "but the container runtime lists no such pod: check --cri-endpoint"},
		"the static pod directory is another": {func(s *site) {
			require.NoError(s.t, os.RemoveAll(s.in("manifests")))
		}, "static pod directory (--static-pod-dir): "},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.copy()
			tt.given(s)
			before := s.files()
			for _, flags := range [][]string{{"--timeout=200ms"}, {"--dry-run"}} {
				code, out, errs := s.run(flags...)
				require.Equal(t, 1, code, out)
				require.Contains(t, errs, "nothing was removed:")
				require.Contains(t, errs, tt.says)
				require.Equal(t, before, s.files())
			}
		})
	}
}

// handoff has the store say that a handoff is open.
func (s *site) handoff(boot string) {
	require.NoError(s.t, os.RemoveAll(s.in("state")))
	dir, err := durable.Create(s.in("state"), 0o700)
	require.NoError(s.t, err)
	disk, err := store.Open(dir)
	require.NoError(s.t, err)
	key := store.Key{Namespace: "kube-system", Workload: "kube-apiserver"}
	_, err = disk.Commit(key, store.Draft{Pod: []byte(`{}`)})
	require.NoError(s.t, err)
	_, err = disk.SetState(key, store.State{Handoff: &store.Handoff{BootID: boot, Activation: checkpointUID, ParentUID: parentUID}})
	require.NoError(s.t, err)
}

func TestUninstallIsNotHeldUpByAHandoffThatNobodyCloses(t *testing.T) {
	for _, boot := range []string{"boot", "an earlier boot"} {
		s := newSite(t)
		s.handoff(boot)
		if boot != "boot" {
			s.copy()
			s.kubelet()
		}
		code, out, errs := s.run()
		require.Zero(t, code, out+errs)
		require.Equal(t, []string{"manifests/etcd.yaml"}, s.files())
	}
}

func TestUninstallDryRunSaysWhatItWouldDo(t *testing.T) {
	s := newSite(t)
	s.copy()
	before := s.files()
	code, out, errs := s.run("--dry-run")
	require.Zero(t, code, errs)
	require.Equal(t, before, s.files())
	require.Equal(t, strings.Join([]string{
		"plan:",
		"  remove " + s.in("manifests/pod-checkpointer.json") + ", the daemon's static copy, and wait until it has ended",
		"  remove " + s.in("state") + ", the copies with their Secrets, and the credentials",
		"  remove " + s.in("bin"),
		"  remove " + s.in("locks"),
		"",
	}, "\n"), out)
}

// A kubelet that has not reached the API server ends nothing.
func TestUninstallWaitsForTheStaticCopyAndGoesOnLater(t *testing.T) {
	s := newSite(t)
	s.copy()
	code, _, errs := s.run("--timeout=200ms")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "stopped half way, and run again it goes on: kube-system/pod-checkpointer-static-master-1 still runs, although its manifest is gone: the kubelet ends it once it has reached the API server")
	require.FileExists(t, s.in("state/kubeconfig"), "who runs uses it")
	s.runtime.Remove(copyUID)
	code, _, errs = s.run()
	require.Zero(t, code, errs)
	require.Equal(t, []string{"manifests/etcd.yaml"}, s.files())
}

// What the daemon began before its end, another daemon must finish.
func TestUninstallPutsTheStaticCopyBackWhenACheckpointStartsMeanwhile(t *testing.T) {
	s := newSite(t)
	s.copy()
	s.checkpoint() // which waits behind its parent
	s.parent()
	s.holds("locks/kube-apiserver.lock", parentUID)
	before, static := s.files(), s.read("manifests/"+kubelet.CopyFile)
	s.kubelet(func() { _ = os.WriteFile(s.in("proc/locks"), nil, 0o600) }) // the parent ends
	code, out, errs := s.run()
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "removed "+s.in("manifests/"+kubelet.CopyFile)+"\n")
	require.Contains(t, out, "put back "+s.in("manifests/"+kubelet.CopyFile)+": the daemon leads again\n")
	require.Contains(t, errs, "- the checkpoint of kube-system/kube-apiserver is being started (")
	require.Equal(t, static, s.read("manifests/"+kubelet.CopyFile))
	after := slices.DeleteFunc(s.files(), func(file string) bool { return file == "state/lock" })
	require.Equal(t, before, after, "nothing else was removed")
}

func TestUninstallTakesTheWritersLock(t *testing.T) {
	s := newSite(t)
	writer, err := store.TryLock(s.in("state")) // somebody whom the table does not show yet
	require.NoError(t, err)
	code, _, errs := s.run()
	require.Equal(t, 1, code)
	require.Contains(t, errs, store.ErrLocked.Error())
	require.FileExists(t, s.in("state/kubeconfig"))
	writer.Release()
	code, _, errs = s.run()
	require.Zero(t, code, errs)
}

func TestUninstallLeavesFilesOfOthers(t *testing.T) {
	s := newSite(t)
	s.write("state/notes", "mine")
	s.write("bin/other", "mine")
	s.write("locks/mine", "mine")
	s.write("manifests/"+kubelet.CopyFile, "apiVersion: v1\nkind: Pod\nmetadata: {name: mine}\n")
	code, out, errs := s.run()
	require.Zero(t, code, errs)
	require.Equal(t, []string{"bin/other", "locks/mine", "manifests/etcd.yaml", "manifests/pod-checkpointer.json", "state/notes"}, s.files())
	require.Regexp(t, s.in("state")+` +it holds files that are not pod-checkpointer's: notes\n`, out)
}
