package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri/critest"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// pair is a node with several copies of the daemon, each a process.
type pair struct {
	t       *testing.T
	dir     string
	listen  string
	runtime *critest.Server
}

// child is one copy.
type child struct {
	*exec.Cmd
	p      *pair
	socket string
	log    *logs
	done   chan struct{} // closed once it has ended
	ended  error
}

// newPair is a node whose procfs tells of each copy in which pod it is.
func newPair(t *testing.T) *pair {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	p := &pair{t: t, dir: t.TempDir(), listen: free.Addr().String(), runtime: critest.Start(t)}
	for _, name := range []string{"manifests", "kubelet", "proc"} {
		require.NoError(t, os.Mkdir(p.in(name), 0o755))
	}
	for _, name := range []string{"locks", "sys", "self"} {
		require.NoError(t, os.Symlink("/proc/"+name, p.in("proc/"+name)))
	}
	return p
}

// kubelet listens where podresources is, and answers nothing.
func (p *pair) kubelet() {
	require.NoError(p.t, os.Mkdir(p.in("kubelet/pod-resources"), 0o755))
	socket, err := net.Listen("unix", p.in("kubelet/pod-resources/kubelet.sock"))
	require.NoError(p.t, err)
	server := grpc.NewServer()
	go func() { _ = server.Serve(socket) }()
	p.t.Cleanup(server.Stop)
}

func (p *pair) in(name string) string { return filepath.Join(p.dir, name) }

// pod runs a copy of the daemon in a pod, as the kubelet has it from source.
func (p *pair) pod(name, source, format string, flags ...string) *child {
	p.t.Helper()
	uid := fmt.Sprintf("%08x-0000-4000-8000-000000000000", len(name)+int(name[0])<<8)
	id := strings.Repeat(fmt.Sprintf("%02x", name[0]), 32)
	p.runtime.Run(critest.Sandbox{
		ID: name, Namespace: "kube-system", Name: name, UID: uid, Ready: true,
		Annotations: map[string]string{"kubernetes.io/config.source": source, "pod-checkpointer.io/format": format},
	}, critest.Container{ID: id, Name: "pod-checkpointer", Image: "daemon:" + name, State: runtimeapi.ContainerState_CONTAINER_RUNNING})
	return p.start(name, "0::/kubepods/pod"+uid+"/"+id+"\n", flags...)
}

// start runs a copy of the daemon, of which the procfs says that it is in cgroup.
func (p *pair) start(name, cgroup string, flags ...string) *child {
	p.t.Helper()
	self, err := os.Executable()
	require.NoError(p.t, err)
	c := &child{p: p, socket: p.in(name + ".sock"), log: &logs{}, done: make(chan struct{})}
	c.Cmd = exec.Command(self, "run", "--node-name=master-1", "--poll=100ms", "--listen="+p.listen, "--socket="+c.socket,
		"--state-dir="+p.in("state"), "--lock-dir="+p.in("lockfiles"), "--static-pod-dir="+p.in("manifests"), "--proc="+p.in("proc"),
		"--kubelet-dir="+p.in("kubelet"), "--cri-endpoint="+p.runtime.Endpoint(), "--kubeconfig="+p.in("kubeconfig"))
	c.Args = append(c.Args, flags...)
	c.Args[0] = "pod-checkpointer" // see TestMain
	c.Stderr = c.log
	require.NoError(p.t, c.Start())
	p.t.Cleanup(func() { _ = c.Process.Kill(); <-c.done })
	go func() {
		defer close(c.done)
		c.ended = c.Wait()
	}()

	pid := strconv.Itoa(c.Process.Pid)
	require.NoError(p.t, os.Mkdir(p.in("proc/"+pid), 0o755))
	for _, file := range []string{"stat", "fd", "fdinfo", "root"} {
		require.NoError(p.t, os.Symlink("/proc/"+pid+"/"+file, p.in("proc/"+pid+"/"+file)))
	}
	require.NoError(p.t, os.WriteFile(p.in("proc/"+pid+"/cgroup"), []byte(cgroup), 0o644))
	return c
}

// says waits until the copy's health does.
func (c *child) says(words string) {
	c.p.t.Helper()
	said := ""
	defer func() {
		if c.p.t.Failed() {
			c.p.t.Logf("health said last: %s\n%s", said, c.log)
		}
	}()
	require.Eventually(c.p.t, func() bool {
		var err error
		said, err = askHealth(c.p.t.Context(), c.socket, "/healthz")
		return err == nil && strings.Contains(said, words)
	}, 20*time.Second, time.Millisecond, words)
}

func (c *child) leads() {
	c.p.t.Helper()
	c.says("ok\n")
}

func (c *child) waitsBehind(leader *child) {
	c.p.t.Helper()
	c.says(fmt.Sprintf("waiting: process %d", leader.Process.Pid))
}

// opened are the sockets of the copy, and what else tells it of the node.
func (c *child) opened() []string {
	c.p.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", c.Process.Pid)
	entries, err := os.ReadDir(dir)
	require.NoError(c.p.t, err)
	var opened []string
	for _, e := range entries {
		link, _ := os.Readlink(filepath.Join(dir, e.Name()))
		if strings.HasPrefix(link, "socket:") || strings.HasSuffix(link, "inotify") || strings.Contains(link, "pidfd") {
			opened = append(opened, link)
		}
	}
	return opened
}

// kill is kill -9.
func (c *child) kill() {
	c.p.t.Helper()
	require.NoError(c.p.t, c.Process.Kill())
	<-c.done
}

func TestSecondDaemonWaitsAndTakesOver(t *testing.T) {
	p := newPair(t)
	first := p.start("first", "0::/system.slice/first.service\n")
	first.leads()
	second := p.start("second", "0::/system.slice/second.service\n")
	second.waitsBehind(first)
	require.Eventually(t, func() bool {
		state, err := lock.Inspect("/proc", store.LockPath(p.in("state")))
		return err == nil && state.Holder != nil && state.Holder.PID == first.Process.Pid &&
			len(state.Waiters) == 1 && state.Waiters[0].PID == second.Process.Pid
	}, 10*time.Second, time.Millisecond)
	ready, err := askHealth(t.Context(), second.socket, "/readyz")
	require.NoError(t, err, "who waits does all that it should")
	require.Contains(t, ready, "waiting: process ")

	began := time.Now()
	first.kill()
	second.leads()
	t.Logf("kill -9 of the leader to the first pass of the other: %s", time.Since(began))
	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	<-second.done
	require.NoError(t, second.ended, second.log)
}

func TestWaitingDaemonEndsAtOnce(t *testing.T) {
	p := newPair(t)
	first := p.start("first", "0::/\n")
	first.leads()
	second := p.start("second", "0::/\n")
	second.waitsBehind(first)
	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	select {
	case <-second.done:
		require.NoError(t, second.ended, second.log)
	case <-time.After(5 * time.Second):
		require.FailNow(t, "it still waits", second.log)
	}
	first.leads()
}

// The static copy leads while there is nobody else, and only then.
func TestStaticCopyMakesWayForThePodOfTheAPI(t *testing.T) {
	p := newPair(t)
	p.kubelet()
	static := p.pod("static", "file", "1")
	static.leads()
	old := p.pod("old", "api", "0")
	old.waitsBehind(static)
	static.says("NewerFormat: kube-system/old (image daemon:old) can read format 0 of the store, which has 1")
	old.kill()
	p.runtime.Remove("old")

	api := p.pod("api", "api", "1")
	api.leads()
	static.waitsBehind(api)
	require.Equal(t, 1, strings.Count(static.log.String(), `"msg":"makes way"`), "it did not take the lock again before the other one had it")
	require.Eventually(t, func() bool { return len(static.opened()) == 1 }, 10*time.Second, 10*time.Millisecond, "its own socket is all that it has open")
	ready, err := askHealth(t.Context(), static.socket, "/readyz")
	require.NoError(t, err)
	require.Contains(t, ready, "pod 0000")

	second := p.pod("second", "api", "1")
	second.waitsBehind(api)
	second.kill()
	static.waitsBehind(api)
	api.kill()
	static.leads()
}

// A new version that can't lead must not look well, or it would come to each node.
func TestACopyThatCantLeadEndsWhereAnotherOneCan(t *testing.T) {
	p := newPair(t)
	static := p.pod("static", "file", "1")
	static.leads()
	require.NoError(t, os.WriteFile(p.in("file"), nil, 0o600))
	api := p.pod("api", "api", "1", "--lock-dir="+p.in("file/locks"))
	select {
	case <-api.done:
	case <-time.After(20 * time.Second):
		require.FailNow(t, "it goes on", api.log)
	}
	require.Equal(t, 1, api.ProcessState.ExitCode(), api.log)
	require.Contains(t, api.log.String(), "\nthis copy of the daemon can't lead, and leaves it to the other one: make --lock-dir: mkdir "+p.in("file"))
	static.leads()
	require.Equal(t, 1, strings.Count(static.log.String(), `"msg":"makes way"`), static.log)
}

func TestACopyThatCantLeadKeepsTryingWhileItIsAlone(t *testing.T) {
	p := newPair(t)
	require.NoError(t, os.WriteFile(p.in("file"), nil, 0o600))
	alone := p.pod("alone", "file", "1", "--lock-dir="+p.in("file/locks"))
	alone.says("waiting: make --lock-dir: ")
	require.NoError(t, os.Remove(p.in("file")))
	alone.leads()
}

// An unreadable disk gets some more tries, before what it can't give is taken for lost.
func TestACopyThatMayYetLeadSaysWhatItLacks(t *testing.T) {
	c := checkpoint.Defaults()
	c.StateDir = t.TempDir()
	d := &daemon{config: c, lacked: fmt.Errorf("read store: %w", syscall.EIO)}
	require.NoError(t, d.ends(patience-1))
	require.ErrorAs(t, d.ends(patience), new(unfit))
	d.follow()
	answer := httptest.NewRecorder()
	d.health.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	require.Equal(t, http.StatusServiceUnavailable, answer.Code)
	require.Contains(t, answer.Body.String(), "this copy could not: read store: input/output error")
}

// The kernel wakes who waits, but whoever is faster gets the lock.
func TestLeaderThatMakesWayWaitsUntilTheOtherOneLeads(t *testing.T) {
	c := checkpoint.Defaults()
	c.StateDir = t.TempDir()
	d := &daemon{config: c}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.makeWay(t.Context())
	}()
	require.Never(t, func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}, 50*time.Millisecond, 5*time.Millisecond, "nobody leads yet")
	release, err := store.LockDir(c.StateDir)
	require.NoError(t, err)
	defer release()
	began := time.Now()
	<-done
	require.Less(t, time.Since(began), time.Second, "it saw who leads, and did not give up")
}

// Two that lead would be the worst: who holds a file that was removed gives up.
func TestRemovedLockFileMakesNoTwoLeaders(t *testing.T) {
	p := newPair(t)
	first := p.start("first", "0::/\n")
	first.leads()
	require.NoError(t, os.Remove(store.LockPath(p.in("state"))))
	second := p.start("second", "0::/\n")
	require.Eventually(t, func() bool {
		return strings.Contains(first.log.String(), "was removed or replaced")
	}, 20*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		state, err := lock.Inspect("/proc", store.LockPath(p.in("state")))
		return err == nil && !state.Split && state.Holder != nil && len(state.Waiters) == 1
	}, 20*time.Second, 10*time.Millisecond)
	first.says("")
	second.says("")
}

// stuck is a clock that a pass never comes back from.
type stuck struct{ until chan struct{} }

func (s stuck) Now() time.Duration { <-s.until; return 0 }
func (s stuck) Boot() string       { return "boot" }

func TestWatchdogEndsADaemonThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := durable.NewDisk()
		state, err := disk.Dir("/state")
		require.NoError(t, err)
		static, err := disk.Dir("/manifests")
		require.NoError(t, err)
		opened, err := store.Open(state)
		require.NoError(t, err)
		clock := stuck{make(chan struct{})}
		defer close(clock.until)
		loop := checkpoint.New(checkpoint.Defaults(), checkpoint.Parts{Clock: clock, Store: opened, Manifests: kubelet.NewManifests(static, "master-1")})
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			defer func() { _ = recover() }() // it has no sources
			_ = loop.Run(ctx, nil)
		}()
		log, exits := &logs{}, make(chan int, 1)
		d := &daemon{log: slog.New(slog.NewTextHandler(log, nil)), stderr: log, exit: func(code int) { exits <- code }}
		end := d.watch(ctx, loop)
		stop() // told to stop, it still must not hang
		require.Equal(t, 1, <-exits)
		require.Contains(t, log.String(), `err="no pass has ended for 30s"`)
		require.Contains(t, log.String(), "stuck.Now", "the stacks of all")
		end()
	})
}
