package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lock-exec": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script"})
}

// process is a lock-exec of a test.
type process struct {
	*exec.Cmd
	stderr *bufio.Reader
	stdout *bufio.Reader
}

// binary is lock-exec: the test runs main when it is called by that name.
func binary(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), "lock-exec")
	require.NoError(t, os.Symlink(exe, link))
	return link
}

// start runs the real main; before, if any, is a command that runs it.
func start(t *testing.T, before []string, args ...string) *process {
	t.Helper()
	argv := slices.Concat(before, []string{binary(t)}, args)
	p := &process{Cmd: exec.Command(argv[0], argv[1:]...)}
	stderr, err := p.StderrPipe()
	require.NoError(t, err)
	stdout, err := p.StdoutPipe()
	require.NoError(t, err)
	p.stderr, p.stdout = bufio.NewReader(stderr), bufio.NewReader(stdout)
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	text, err := r.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSuffix(text, "\n")
}

// hold starts a program that holds the lock until the test ends or kills it.
func hold(t *testing.T, path string) *process {
	t.Helper()
	p := start(t, nil, "--lock", path, "--", "sleep", "1000")
	require.Equal(t, "lock-exec: holds "+path+", which was free", line(t, p.stderr))
	return p
}

func exitCode(t *testing.T, p *process) int {
	t.Helper()
	_, _ = io.Copy(io.Discard, p.stderr)
	_ = p.Wait()
	return p.ProcessState.ExitCode()
}

func TestWaitIsSaidOnceAndEndsWithHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etcd.lock")
	holder := hold(t, path)
	waiter := start(t, nil, "--lock", path, "--", "echo", "served")
	require.Regexp(t, `^lock-exec: waits for \S+, held by pid \d+$`, line(t, waiter.stderr))
	require.NoError(t, holder.Process.Kill())
	require.Regexp(t, `^lock-exec: holds \S+, after a wait of [0-9.]+m?s$`, line(t, waiter.stderr))
	require.Equal(t, "served", line(t, waiter.stdout))
	require.Zero(t, exitCode(t, waiter))
}

// A Secret may be refreshed while the program waits for days.
func TestEnvironmentIsReadAfterTheWait(t *testing.T) {
	path, dir := filepath.Join(t.TempDir(), "etcd.lock"), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "TOKEN"), []byte("old"), 0o600))
	holder := hold(t, path)
	waiter := start(t, nil, "--lock", path, "--env-dir", dir, "--", "sh", "-c", `echo "$TOKEN"`)
	line(t, waiter.stderr)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "TOKEN"), []byte("new"), 0o600))
	require.NoError(t, holder.Process.Kill())
	require.Equal(t, "new", line(t, waiter.stdout))
}

func TestSignalEndsWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etcd.lock")
	hold(t, path)
	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130} {
		waiter := start(t, nil, "--lock", path, "--", "true")
		line(t, waiter.stderr)
		require.NoError(t, waiter.Process.Signal(sig))
		require.Equal(t, "lock-exec: stops waiting for "+path+": "+sig.String(), line(t, waiter.stderr))
		require.Equal(t, code, exitCode(t, waiter))
	}
}

// asProcessOne runs a command as process 1 with its own /proc, where the
// machine lets this user have new namespaces.
func asProcessOne(t *testing.T) []string {
	t.Helper()
	command := []string{"unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if out, err := exec.Command(command[0], append(command[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no namespaces for this user: %v: %s", err, bytes.TrimSpace(out))
	}
	return command
}

// The kernel drops a signal to process 1 that it has not asked for.
func TestSignalEndsWaitOfProcessOne(t *testing.T) {
	one := asProcessOne(t)
	path := filepath.Join(t.TempDir(), "etcd.lock")
	hold(t, path)
	waiter := start(t, one, "--lock", path, "--", "true")
	require.Equal(t, "lock-exec: waits for "+path+", held by a process that can't be seen from here", line(t, waiter.stderr))
	unshare := strconv.Itoa(waiter.Process.Pid)
	children, err := os.ReadFile(filepath.Join("/proc", unshare, "task", unshare, "children"))
	require.NoError(t, err)
	require.NoError(t, exec.Command("kill", "-TERM", strings.TrimSpace(string(children))).Run())
	require.Equal(t, 143, exitCode(t, waiter))
}

func TestCheckOfRealProcessOne(t *testing.T) {
	one := asProcessOne(t)
	path := filepath.Join(t.TempDir(), "etcd.lock")
	holder := start(t, one, "--lock", path, "--", "sh", "-c",
		`"$0" check --ready --lock "$1" -- exec echo asked; echo "$?"; "$0" check --live --lock "$1" --start-window 1m -- exec false; echo "$?"`,
		binary(t), path)
	require.Equal(t, "asked", line(t, holder.stdout))
	require.Equal(t, "0", line(t, holder.stdout))
	require.Regexp(t, `^lock-exec: starts: holds the lock for \S+ of 1m0s$`, line(t, holder.stdout))
	require.Equal(t, "0", line(t, holder.stdout))
}
