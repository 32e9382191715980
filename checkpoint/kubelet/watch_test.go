package kubelet

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// watching watches dir until the test ends. woken gets what is told.
func watching(t *testing.T, dir string) (woken <-chan struct{}, ended <-chan error) {
	t.Helper()
	wakes, done := make(chan struct{}, 100), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		done <- Watch(ctx, dir, func() { wakes <- struct{}{} })
	}()
	t.Cleanup(func() {
		stop()
		<-finished
	})
	// The watch has begun when a file is heard of.
	require.Eventually(t, func() bool {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "begin"), nil, 0o600))
		select {
		case <-wakes:
			return true
		default:
			return false
		}
	}, 5*time.Second, 5*time.Millisecond)
	return wakes, done
}

// heard waits until something is told.
func heard(t *testing.T, woken <-chan struct{}) {
	t.Helper()
	select {
	case <-woken:
	case <-time.After(5 * time.Second):
		t.Fatal("not woken")
	}
}

// drain waits until nothing is told any more.
func drain(woken <-chan struct{}) {
	for {
		select {
		case <-woken:
		case <-time.After(30 * time.Millisecond):
			return
		}
	}
}

func TestWatchHearsOfManifests(t *testing.T) {
	dir := t.TempDir()
	woken, _ := watching(t, dir)
	drain(woken)
	temp, file := filepath.Join(dir, ".pod.yaml"), filepath.Join(dir, "pod.yaml")
	require.NoError(t, os.WriteFile(temp, []byte("a"), 0o600))
	drain(woken)
	require.Empty(t, woken)
	require.NoError(t, os.Rename(temp, file))
	heard(t, woken)
	drain(woken)
	require.NoError(t, os.Remove(file))
	heard(t, woken)
}

func TestWatchEndsWithItsDirectory(t *testing.T) {
	for name, away := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"renamed": func(dir string) error { return os.Rename(dir, dir+".old") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "manifests")
			require.NoError(t, os.Mkdir(dir, 0o755))
			_, ended := watching(t, dir)
			require.NoError(t, away(dir))
			require.ErrorContains(t, <-ended, "the directory is gone")
		})
	}
	require.ErrorIs(t, Watch(t.Context(), "/nowhere/manifests", func() {}), os.ErrNotExist)
}
