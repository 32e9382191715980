package main

import (
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// container is a procfs whose process 1 is p.
func container(t *testing.T, p *process) string {
	t.Helper()
	proc := t.TempDir()
	require.NoError(t, os.Symlink("/proc/"+strconv.Itoa(p.Process.Pid), filepath.Join(proc, "1")))
	return proc
}

func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kube-apiserver.lock")
	holding := container(t, hold(t, path))
	waiter := start(t, nil, "--lock", path, "--", "true")
	line(t, waiter.stderr)
	waiting := container(t, waiter)
	unknown := t.TempDir()
	split := filepath.Join(t.TempDir(), "etcd.lock")
	splitting := container(t, hold(t, split))
	require.NoError(t, os.Remove(split))

	asked := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // a tcp probe is no handshake
	server.StartTLS()
	defer server.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := free.Addr().String()
	require.NoError(t, free.Close())
	ready, failing := "https "+server.URL+"/readyz", "https "+server.URL+"/failing"

	for _, tt := range []struct {
		name, proc, lock, flags, target string
		code                            int
		says                            string
		asks                            bool
	}{
		{"waiter is alive", waiting, path, "--live", failing, 0, "waits for " + path, false},
		{"waiter is not ready, though the holder answers", waiting, path, "--ready", ready, 1, "waits for " + path, false},
		{"ready is the default", waiting, path, "", ready, 1, "waits for " + path, false},
		{"holder that answers is ready", holding, path, "--ready", ready, 0, "holds the lock and answers", true},
		{"holder that answers is alive", holding, path, "--live", ready, 0, "holds the lock and answers", true},
		{"holder that fails is not ready", holding, path, "--ready", failing, 1, "/failing: status 500", true},
		{"holder that fails is not alive", holding, path, "--live", failing, 1, "/failing: status 500", true},
		{"nobody listens", holding, path, "--live", "tcp " + closed, 1, "connection refused", false},
		{"tcp", holding, path, "--ready", "tcp " + server.Listener.Addr().String(), 0, "holds the lock and answers", false},
		{"start window", holding, path, "--live --start-window 1h", failing, 0, "starts: holds the lock for ", false},
		{"start window is over", holding, path, "--live --start-window 1ns", failing, 1, "status 500", true},
		{"start window is not for a waiter", waiting, path, "--live --start-window 1ns", failing, 0, "waits for ", false},
		{"unknown is alive", unknown, path, "--live", failing, 0, "not known whether it holds the lock", false},
		{"unknown is not ready", unknown, path, "--ready", ready, 1, "not known whether it holds the lock", false},
		{"split is alive", splitting, split, "--live", failing, 0, "no longer at this path", false},
		{"split is not ready", splitting, split, "--ready", ready, 1, "no longer at this path", false},
		{"exec is not run for a waiter", waiting, path, "--live", "exec false", 0, "waits for ", false},
		{"exec that is absent", holding, path, "--ready", "exec no-such-program", 1, "find program", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked = 0
			args := append(strings.Fields(tt.flags), "--lock", tt.lock, "--")
			args = append(args, strings.Fields(tt.target)...)
			var stdout, stderr bytes.Buffer
			code := check(tt.proc, args, os.Environ(), &stdout, &stderr)
			assert.Equal(t, tt.code, code)
			assert.Empty(t, stderr.String())
			assert.Contains(t, stdout.String(), tt.says)
			assert.Equal(t, 1, strings.Count(stdout.String(), "\n"), "one line: %q", stdout.String())
			assert.Equal(t, tt.asks, asked > 0, "asked")
		})
	}
}
