package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// machine is a node on which next to nothing is there, and a daemon on it.
type machine struct {
	t      *testing.T
	dir    string
	listen string
	socket string
	log    *logs
	stop   context.CancelFunc
	exit   chan int
}

// logs may be read while they are written.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// boot runs the program on a machine that has a state directory alone.
func boot(t *testing.T, before func(dir string), flags ...string) *machine {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	m := &machine{t: t, dir: t.TempDir(), listen: free.Addr().String(), log: &logs{}, exit: make(chan int, 1)}
	m.socket = filepath.Join(m.dir, "daemon.sock")
	before(m.dir)
	in := func(name string) string { return filepath.Join(m.dir, name) }
	args := append([]string{
		"run", "--node-name=master-1", "--poll=100ms", "--listen=" + m.listen, "--socket=" + m.socket, "--state-dir=" + in("state"), "--lock-dir=" + in("locks"),
		"--static-pod-dir=" + in("manifests"), "--kubelet-dir=" + in("kubelet"), "--cri-endpoint=unix://" + in("cri.sock"), "--kubeconfig=" + in("kubeconfig"),
	}, flags...)
	ctx, stop := context.WithCancel(t.Context())
	m.stop = stop
	go func() { m.exit <- run(ctx, args, func(string) string { return "" }, io.Discard, m.log) }()
	t.Cleanup(stop)
	return m
}

// healthz waits until the daemon's health says, or no longer says, these words.
func (m *machine) healthz(says bool, words string) {
	m.t.Helper()
	said := ""
	defer func() {
		if m.t.Failed() {
			m.t.Logf("healthz said last: %s", said)
		}
	}()
	require.Eventually(m.t, func() bool {
		var err error
		said, err = askHealth(m.t.Context(), m.socket, "/healthz")
		return err == nil && strings.Contains(said, words) == says
	}, 20*time.Second, 20*time.Millisecond, "healthz, %q: %t\n%s", words, says, m.log)
}

// end tells the daemon to stop, and returns its exit status.
func (m *machine) end() int {
	m.stop()
	return <-m.exit
}

// Whatever is missing is named, is no reason to restart, and is found when it comes.
func TestDaemonWaitsForWhatIsMissing(t *testing.T) {
	m := boot(t, func(string) {})
	m.healthz(true, "ok\n")
	for _, words := range []string{"runtime unknown: ", "cri.sock", "kubelet unknown: ", "api unknown: use credentials", "manifests unknown: "} {
		m.healthz(true, words)
	}
	require.NoError(t, os.Mkdir(filepath.Join(m.dir, "manifests"), 0o755))
	m.healthz(false, "manifests unknown: ")
	m.healthz(true, "runtime unknown: ")
	require.Zero(t, m.end(), m.log.String())
	require.Contains(t, m.log.String(), `"msg":"leading"`)
	require.Contains(t, m.log.String(), `"node":"master-1"`)
}

func TestDaemonWaitsForTheWritersLock(t *testing.T) {
	var release func()
	m := boot(t, func(dir string) {
		state := filepath.Join(dir, "state")
		require.NoError(t, os.Mkdir(state, 0o700))
		var err error
		release, err = store.LockDir(state)
		require.NoError(t, err)
	})
	m.healthz(true, fmt.Sprintf("waiting: process %d", os.Getpid()))
	_, err := http.Get("http://" + m.listen + "/healthz")
	require.Error(t, err, "that port is the leader's")
	release()
	m.healthz(true, "ok\n")
	require.Zero(t, m.end(), m.log.String())
	require.Contains(t, m.log.String(), `"msg":"waiting for the lead"`)
}

func TestDaemonNamesABrokenKubeconfig(t *testing.T) {
	m := boot(t, func(dir string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "kubeconfig"), []byte("token: secret-token\n{"), 0o600))
	})
	m.healthz(true, "api unknown: use credentials of kubeconfig "+filepath.Join(m.dir, "kubeconfig")+": ")
	require.Zero(t, m.end())
	require.NotContains(t, m.log.String(), "secret-token")
}

func TestDaemonEndsWhileItWaits(t *testing.T) {
	m := boot(t, func(dir string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "state"), nil, 0o600)) // a file where the directory should be
	})
	m.healthz(true, "waiting: open --state-dir: ")
	require.Zero(t, m.end(), m.log.String())
}

func TestATakenPortKeepsTheDaemonFromNothing(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m := boot(t, func(string) {}, "--listen="+taken.Addr().String())
	m.healthz(true, "ok\n")
	require.Eventually(t, func() bool { return strings.Contains(m.log.String(), "nothing is served on --listen") }, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, taken.Close())
	require.Eventually(t, func() bool {
		answer, err := http.Get("http://" + taken.Addr().String() + "/healthz")
		return err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	}, 20*time.Second, 10*time.Millisecond)
	require.Zero(t, m.end(), m.log.String())
}

func TestDryRunWritesNothing(t *testing.T) {
	m := boot(t, func(dir string) { require.NoError(t, os.Mkdir(filepath.Join(dir, "state"), 0o700)) }, "--dry-run")
	m.healthz(true, "ok\n")
	require.Zero(t, m.end(), m.log.String())
	require.NoDirExists(t, filepath.Join(m.dir, "locks"))
	left, err := os.ReadDir(filepath.Join(m.dir, "state"))
	require.NoError(t, err)
	require.Empty(t, left)
}
