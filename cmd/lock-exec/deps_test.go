package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/pod-checkpointer/pod-checkpointer/"

// TestDeps keeps the launcher small: it stands on every master's disk, and
// each guarded program starts through it.
func TestDeps(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	require.NoError(t, err)
	for path := range strings.FieldsSeq(string(out)) {
		switch path {
		case module + "cmd/lock-exec", module + "lock", module + "lock/probe", module + "lock/expand", "golang.org/x/sys/unix":
		default:
			t.Errorf("lock-exec depends on %s", path)
		}
	}
}

// TestSize builds it as it is shipped: 6.0 MiB when this was written, nearly all
// of it net/http and crypto/tls for the probes.
func TestSize(t *testing.T) {
	if testing.Short() {
		t.Skip("links a program, which takes seconds")
	}
	file := filepath.Join(t.TempDir(), "lock-exec")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.LessOrEqual(t, info.Size(), int64(8<<20))
	t.Logf("%.1f MiB", float64(info.Size())/(1<<20))
}
