package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSocketIsForThisUserAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "daemon.sock")
	listener, err := listenSocket(path)
	require.NoError(t, err)
	for file, mode := range map[string]string{path: "Srw-------", filepath.Dir(path): "drwx------"} {
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().String(), file)
	}
	_, err = listenSocket(path)
	require.ErrorContains(t, err, "address already in use", "a daemon answers on it")
	require.NoError(t, listener.Close())
	require.NoFileExists(t, path)
}

func TestSocketThatADaemonLeftIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.sock")
	dead, err := net.Listen("unix", path)
	require.NoError(t, err)
	dead.(*net.UnixListener).SetUnlinkOnClose(false) // as one that was killed
	require.NoError(t, dead.Close())
	listener, err := listenSocket(path)
	require.NoError(t, err)
	require.NoError(t, listener.Close())

	require.NoError(t, os.WriteFile(path, []byte("precious"), 0o600))
	_, err = listenSocket(path)
	require.ErrorContains(t, err, "address already in use")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "precious", string(text), "what is no socket is somebody else's")
}

func TestATakenSocketKeepsTheDaemonFromNothing(t *testing.T) {
	var taken net.Listener
	m := boot(t, func(dir string) {
		var err error
		taken, err = listenSocket(filepath.Join(dir, "daemon.sock"))
		require.NoError(t, err)
	})
	require.Eventually(t, func() bool { return strings.Contains(m.log.String(), `"msg":"leading"`) }, 20*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { return strings.Contains(m.log.String(), "nothing is served on --socket") }, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, taken.Close())
	m.healthz(true, "ok\n")
	require.Zero(t, m.end(), m.log.String())
}

// health is the command, its exit status and what it printed.
func health(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"health"}, args...), func(string) string { return "" }, &out, &errs)
	return code, out.String(), errs.String()
}

func TestHealthAsksItsOwnDaemon(t *testing.T) {
	m := boot(t, func(string) {})
	m.healthz(true, "ok\n")
	code, out, errs := health(t, "--socket="+m.socket)
	require.Zero(t, code, errs)
	require.True(t, strings.HasPrefix(out, "ok\nruntime unknown: "), out)
	code, out, _ = health(t, "--socket="+m.socket, "--ready")
	require.Zero(t, code)
	require.Equal(t, "ok\n", out)
	require.Zero(t, m.end())
	code, _, errs = health(t, "--socket="+m.socket)
	require.Equal(t, 1, code)
	require.Equal(t, fmt.Sprintf("ask the daemon: dial unix %s: connect: no such file or directory\n", m.socket), errs)
}

func TestHealthSaysWhyNot(t *testing.T) {
	m := boot(t, func(dir string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "state"), nil, 0o600))
	})
	m.healthz(true, "waiting: open --state-dir: ")
	code, _, errs := health(t, "--socket="+m.socket, "--ready")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "the daemon says: open --state-dir: ")

	silent, err := listenSocket(filepath.Join(m.dir, "silent.sock"))
	require.NoError(t, err)
	defer silent.Close()
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	_, err = askHealth(ctx, filepath.Join(m.dir, "silent.sock"), "/healthz")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
