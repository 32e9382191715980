package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

// image is a directory with both programs, as an image of that version has them.
func image(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range installed {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name+" "+version), 0o600))
	}
	return dir
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Sys().(*syscall.Stat_t).Ino
}

func TestInstallWritesOnlyWhatDiffers(t *testing.T) {
	dir, err := openBin(filepath.Join(t.TempDir(), "opt", "bin"))
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, install(image(t, "1"), dir, &out))
	require.Equal(t, dir.Path()+"/lock-exec installed\n"+dir.Path()+"/pod-checkpointer installed\n", out.String())
	old := map[string]os.FileInfo{}
	for _, name := range installed {
		data, err := dir.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, name+" 1", string(data))
		old[name], err = dir.Stat(name)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o755), old[name].Mode())
	}

	out.Reset()
	require.NoError(t, install(image(t, "1"), dir, &out))
	require.Equal(t, dir.Path()+"/lock-exec is up to date\n"+dir.Path()+"/pod-checkpointer is up to date\n", out.String())
	for _, name := range installed {
		now, err := dir.Stat(name)
		require.NoError(t, err)
		require.True(t, os.SameFile(old[name], now), "%s is the same file", name)
		require.Equal(t, old[name].ModTime(), now.ModTime(), name)
	}

	// One that nobody may run is no lock-exec.
	require.NoError(t, os.Chmod(filepath.Join(dir.Path(), "lock-exec"), 0o600))
	require.NoError(t, install(image(t, "1"), dir, io.Discard))
	info, err := dir.Stat("lock-exec")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode())

	require.NoError(t, install(image(t, "2"), dir, io.Discard))
	data, err := dir.ReadFile("lock-exec")
	require.NoError(t, err)
	require.Equal(t, "lock-exec 2", string(data))
	left, err := dir.ReadDir(".")
	require.NoError(t, err)
	require.Len(t, left, len(installed), "no temporary file is left")
}

// Who waits for a lock runs lock-exec: to write into that file is refused by the
// kernel with ETXTBSY, to rename over it is not.
func TestInstallReplacesARunningProgram(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	program, err := os.ReadFile(sleep)
	require.NoError(t, err)
	dir, err := openBin(t.TempDir())
	require.NoError(t, err)
	path := filepath.Join(dir.Path(), "lock-exec")
	require.NoError(t, os.WriteFile(path, program, 0o755)) //nolint:gosec // a program
	running := exec.CommandContext(t.Context(), path, "1h")
	require.NoError(t, running.Start())
	before := inode(t, path)

	require.NoError(t, install(image(t, "2"), dir, io.Discard))
	require.NotEqual(t, before, inode(t, path))
	require.NoError(t, running.Process.Signal(syscall.SIGTERM), "the old one still runs")
	var exit *exec.ExitError
	require.ErrorAs(t, running.Wait(), &exit)
	require.Equal(t, syscall.SIGTERM, exit.Sys().(syscall.WaitStatus).Signal())
}

func TestInstallNamesTheDirectoryThatItCantWrite(t *testing.T) {
	dir, err := openBin(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, install(image(t, "1"), dir, io.Discard))
	require.NoError(t, install(image(t, "1"), dir.ReadOnly(), io.Discard), "nothing is to be written")
	err = install(image(t, "2"), dir.ReadOnly(), io.Discard)
	require.ErrorIs(t, err, syscall.EROFS)
	require.ErrorContains(t, err, "install lock-exec in --bin-dir "+dir.Path()+": ")
}

func TestInstallOnAFullDisk(t *testing.T) {
	disk := durable.NewDisk()
	dir, err := disk.Dir("/opt/pod-checkpointer/bin")
	require.NoError(t, err)
	require.NoError(t, install(image(t, "1"), dir, io.Discard))
	disk.Fail(func(op, _ string) error {
		if op == "write" {
			return syscall.ENOSPC
		}
		return nil
	})
	err = install(image(t, "2"), dir, io.Discard)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorContains(t, err, "install lock-exec in --bin-dir /opt/pod-checkpointer/bin: ")
	data, err := dir.ReadFile("lock-exec")
	require.NoError(t, err)
	require.Equal(t, "lock-exec 1", string(data), "the old one is whole")
	left, err := dir.ReadDir(".")
	require.NoError(t, err)
	require.Len(t, left, len(installed), "no temporary file is left")
}
