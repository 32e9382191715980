package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

// dirOnDisk is a directory on the disk of the working directory, since a temporary
// one is often in memory.
func dirOnDisk(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp(".", ".bench-") //nolint:usetesting // b.TempDir is where a disk may be memory
	require.NoError(b, err)
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	dir, err = filepath.Abs(dir)
	require.NoError(b, err)
	return dir
}

// BenchmarkCommit commits a pod with 3 Secrets, each of which has changed: 4 files and 7
// directories that change, hence 11 times BenchmarkFsync at least.
func BenchmarkCommit(b *testing.B) {
	s := storeOnDisk(b)
	for i := 0; b.Loop(); i++ {
		_, err := s.Commit(api, secrets(i))
		require.NoError(b, err)
	}
}

// BenchmarkStage lays out a generation of 3 Secrets.
func BenchmarkStage(b *testing.B) {
	s := storeOnDisk(b)
	seq, err := s.Commit(api, secrets(0))
	require.NoError(b, err)
	for i := 0; b.Loop(); i++ {
		_, err := s.Stage(api, seq, fmt.Sprintf("%032x", i), nil)
		require.NoError(b, err)
	}
}

// BenchmarkOpen reads and verifies a store of 5 generations of 3 Secrets.
func BenchmarkOpen(b *testing.B) {
	s := storeOnDisk(b)
	for i := range 5 {
		_, err := s.Commit(api, secrets(i))
		require.NoError(b, err)
	}
	for b.Loop() {
		_, err := Open(s.dir)
		require.NoError(b, err)
	}
}

// BenchmarkFsync is what the disk takes for one file of 4 KiB and one fsync.
func BenchmarkFsync(b *testing.B) {
	f, err := os.Create(filepath.Join(dirOnDisk(b), "f"))
	require.NoError(b, err)
	defer f.Close()
	data := bytes.Repeat([]byte("x"), 4096)
	for b.Loop() {
		_, err := f.Write(data)
		require.NoError(b, err)
		require.NoError(b, f.Sync())
	}
}

func storeOnDisk(b *testing.B) *Store {
	b.Helper()
	dir, err := durable.Open(dirOnDisk(b))
	require.NoError(b, err)
	s, err := Open(dir)
	require.NoError(b, err)
	return s
}

func secrets(i int) Draft {
	d := Draft{Pod: json.RawMessage(`{"spec":{}}`)}
	for _, name := range []string{"a", "b", "c"} {
		data := fmt.Appendf(bytes.Repeat([]byte(name), 2048), "%d", i)
		d.Volumes = append(d.Volumes, Volume{Name: name, Files: []File{
			{Path: "tls.crt", Data: data, Mode: 0o444, UID: os.Getuid(), GID: os.Getgid()},
			{Path: "tls.key", Data: data, Mode: 0o400, UID: os.Getuid(), GID: os.Getgid()},
		}})
	}
	return d
}
