package lock

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDeathOfHolderWakesFirstWaiter(t *testing.T) {
	path := lockFile(t)
	first := holder(t, path)
	second, third, fourth := waiter(t, path), waiter(t, path), waiter(t, path)
	require.Equal(t, []int{first.pid(), second.pid(), third.pid(), fourth.pid()}, pids(t, path))

	first.kill()
	second.line(t, "holds")
	require.Equal(t, []int{second.pid(), third.pid(), fourth.pid()}, pids(t, path))

	// A waiter that dies loses nobody else's place.
	third.kill()
	awaitWaiter(t, path, fourth)
	require.Equal(t, []int{second.pid(), fourth.pid()}, pids(t, path))

	second.kill()
	fourth.line(t, "holds")
}

func TestExecKeepsLock(t *testing.T) {
	path := lockFile(t)
	program := start(t, "exec", []string{path, "cat"})
	_, err := program.in.Write([]byte("are you there\n"))
	require.NoError(t, err)
	program.line(t, "are you there")

	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", program.pid()))
	require.NoError(t, err)
	require.NotContains(t, exe, ".test", "the program has taken over")
	require.Equal(t, []int{program.pid()}, pids(t, path))
	_, err = Try(path)
	require.ErrorIs(t, err, ErrHeld)

	held, err := HeldBy("/proc", program.pid(), path)
	require.NoError(t, err)
	require.True(t, held.Yes)

	program.kill()
	_, err = Try(path)
	require.NoError(t, err)
}

func TestExecGivesDefaultSignals(t *testing.T) {
	path := lockFile(t)
	program := start(t, "exec", []string{path, "cat", "/proc/self/status"})
	for {
		line, err := program.out.ReadString('\n')
		if err != nil {
			break
		}
		for _, name := range []string{"SigBlk", "SigIgn", "SigCgt"} {
			if set, ok := strings.CutPrefix(line, name+":\t"); ok {
				assert.Equal(t, strings.Repeat("0", 16), strings.TrimSpace(set), name)
			}
		}
	}
	require.NoError(t, program.Wait())
}

func TestFailedExecStillHoldsAndLeaksNothing(t *testing.T) {
	path := lockFile(t)
	l, err := Acquire(path)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "no-program")
	require.NoError(t, os.WriteFile(file, []byte{0x7f, 'E', 'L', 'F'}, 0o755))

	require.ErrorIs(t, l.Exec([]string{file}, nil), syscall.ENOEXEC)
	require.Equal(t, []int{os.Getpid()}, pids(t, path))
	child := start(t, "idle", nil)
	child.line(t, "idle")
	held, err := HeldBy("/proc", child.pid(), path)
	require.NoError(t, err)
	require.False(t, held.Yes, "a child must not inherit the lock")
}

func TestReplacedFileIsLockedAnew(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, path string){
		"removed": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"made again": func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.WriteFile(path, nil, 0o666))
		},
		"renamed over": func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path+".new", nil, 0o666))
			require.NoError(t, os.Rename(path+".new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := lockFile(t)
			old := holder(t, path)
			next := waiter(t, path)
			replace(t, path)

			state, err := Inspect("/proc", path)
			require.NoError(t, err)
			require.True(t, state.Split)
			require.Nil(t, state.Holder)
			_, err = HeldBy("/proc", old.pid(), path)
			require.ErrorIs(t, err, ErrSplit)

			old.kill()
			next.line(t, "holds")
			require.Equal(t, []int{next.pid()}, pids(t, path))
			state, err = Inspect("/proc", path)
			require.NoError(t, err)
			require.False(t, state.Split)
			require.True(t, state.Exists)
		})
	}
}

func TestAcquireMakesFileForEverybody(t *testing.T) {
	mask := syscall.Umask(0o077)
	defer syscall.Umask(mask)
	path := lockFile(t)
	_, err := Acquire(path)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o666), info.Mode())
	require.Zero(t, info.Size())
}

func TestAcquireSetsTime(t *testing.T) {
	path := lockFile(t)
	require.NoError(t, os.WriteFile(path, nil, 0o666))
	long := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(path, long, long))
	_, err := Acquire(path)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), info.ModTime(), time.Minute)
}

func TestAcquireNamesAbsentDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "absent", "kube-apiserver.lock")
	_, err := Acquire(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "the directory "+filepath.Dir(path)+" is absent")
	require.ErrorContains(t, err, "DirectoryOrCreate")
	require.NotContains(t, err.Error(), "\n")
}

func TestAcquireRefusesDirectory(t *testing.T) {
	_, err := Acquire(t.TempDir())
	require.ErrorContains(t, err, "not a regular file")
}

func TestProgramIsFoundAsByExecvp(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.Mkdir("a", 0o755))
	require.NoError(t, os.MkdirAll("b/adir", 0o755))
	require.NoError(t, os.WriteFile("a/denied", nil, 0o644))
	require.NoError(t, os.WriteFile("a/both", nil, 0o644))
	for _, file := range []string{"a/tool", "b/tool", "b/both", "here"} {
		require.NoError(t, os.WriteFile(file, nil, 0o755))
	}
	path := "PATH=" + dir + "/absent:" + dir + "/a/tool:" + dir + "/a:" + dir + "/b"
	for _, tt := range []struct {
		name, env, want string
		err             error
	}{
		{"tool", path, dir + "/a/tool", nil},
		{"both", path, dir + "/b/both", nil}, // goes on after one that is denied
		{"denied", path, "", syscall.EACCES},
		{"adir", path, "", syscall.EISDIR},
		{"none", path, "", os.ErrNotExist},
		{"", path, "", os.ErrNotExist},
		{"here", "PATH=" + dir + "/a:", "./here", nil},
		{"here", "PATH=", "./here", nil},
		{"here", path, "", os.ErrNotExist},
		{"./here", path, "./here", nil},
		{"./none", path, "", os.ErrNotExist},
		{"sh", "HOME=/", "/bin/sh", nil}, // no PATH
	} {
		got, err := Program(tt.name, []string{tt.env})
		assert.Equal(t, tt.want, got, "%q in %s", tt.name, tt.env)
		if tt.err == nil {
			assert.NoError(t, err)
		} else {
			assert.ErrorIs(t, err, tt.err, "%q in %s", tt.name, tt.env)
		}
	}
}
