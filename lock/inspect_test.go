package lock

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// golden reads the archives of a directory below testdata.
func golden(t *testing.T, dir string, run func(t *testing.T, files map[string]string)) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			require.NoError(t, err)
			files := map[string]string{}
			for _, file := range archive.Files {
				files[file.Name] = string(file.Data)
			}
			run(t, files)
		})
	}
}

func TestCgroupNamesContainerAndPod(t *testing.T) {
	golden(t, "cgroup", func(t *testing.T, files map[string]string) {
		container, pod := parseCgroup(files["cgroup"])
		require.Equal(t, files["want"], fmt.Sprintf("container %s\npod %s\n", orDash(container), orDash(pod)))
	})
}

func TestInspectReadsTable(t *testing.T) {
	golden(t, "inspect", func(t *testing.T, files map[string]string) {
		path, values := place(t)
		proc := t.TempDir()
		for name, text := range files {
			text = values.Replace(text)
			file := filepath.Join(proc, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			if link := strings.TrimSpace(text); strings.Contains(name, "/fd/") || strings.HasSuffix(name, "/root") {
				require.NoError(t, os.Symlink(link, file))
				continue
			}
			require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		}
		state, err := Inspect(proc, path)
		if want, ok := strings.CutPrefix(files["want"], "error: "); ok {
			require.ErrorContains(t, err, strings.TrimSpace(want))
			require.Nil(t, state.Holder)
			return
		}
		require.NoError(t, err)
		require.Equal(t, files["want"], render(state))
	})
}

// place makes a lock file and what else the archives of testdata/inspect name.
func place(t *testing.T) (path string, values *strings.Replacer) {
	t.Helper()
	root := t.TempDir()
	dir, alias, elsewhere := filepath.Join(root, "dir"), filepath.Join(root, "alias"), filepath.Join(root, "elsewhere")
	for _, d := range []string{dir, alias, elsewhere} {
		require.NoError(t, os.Mkdir(d, 0o755))
	}
	// The process whose /proc/PID/root is alias has the directory at alias/locks.
	require.NoError(t, os.MkdirAll(filepath.Join(alias, alias), 0o755))
	require.NoError(t, os.Symlink(dir, filepath.Join(alias, alias, "locks")))
	require.NoError(t, os.Symlink(dir, filepath.Join(alias, "locks")))
	path = filepath.Join(dir, "kube-apiserver.lock")
	at := func(file string, nextDevice uint64) string {
		require.NoError(t, os.WriteFile(file, nil, 0o666))
		var stat unix.Stat_t
		require.NoError(t, unix.Stat(file, &stat))
		dev := stat.Dev + nextDevice
		return fmt.Sprintf("%02x:%02x:%d", unix.Major(dev), unix.Minor(dev), stat.Ino)
	}
	return path, strings.NewReplacer(
		"{path}", path, "{base}", filepath.Base(path), "{alias}", alias, "{elsewhere}", elsewhere,
		"{file}", at(path, 0),
		"{otherdevice}", at(path, 1),
		"{other}", at(filepath.Join(dir, "etcd.lock"), 0),
		"{deleted}", at(path+" (deleted)", 0), // what the kernel's link would lead to
		"{namesake}", at(filepath.Join(elsewhere, filepath.Base(path)), 0))
}

func render(s State) string {
	var b strings.Builder
	one := func(role string, p Process) {
		fmt.Fprintf(&b, "%s %d started %d container %s pod %s\n",
			role, p.PID, p.StartTime, orDash(p.ContainerID), orDash(p.PodUID))
	}
	if s.Holder == nil {
		b.WriteString("free\n")
	} else {
		one("holder", *s.Holder)
	}
	for _, w := range s.Waiters {
		one("waiter", w)
	}
	if s.Split {
		b.WriteString("split\n")
	}
	return b.String()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func TestInspectWithoutFile(t *testing.T) {
	for _, path := range []string{lockFile(t), filepath.Join(t.TempDir(), "absent", "etcd.lock")} {
		state, err := Inspect("/proc", path)
		require.NoError(t, err)
		require.Equal(t, State{Path: path}, state)
	}
}

func TestInspectWithoutTableIsNotFree(t *testing.T) {
	_, err := Inspect(t.TempDir(), lockFile(t))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Where stat and the lock table tell different devices, as on btrfs, the
// process's own descriptor decides.
func TestShiftyDeviceIsMatchedByDescriptor(t *testing.T) {
	path := lockFile(t)
	process := holder(t, path)
	id, err := identify(path)
	require.NoError(t, err)
	id.shifty = true
	e := entry{pid: process.pid(), device: id.device + 1, inode: id.inode}

	ours, err := id.locked("/proc", e)
	require.NoError(t, err)
	require.True(t, ours)

	namesake := id // the same inode number elsewhere
	namesake.device += 2
	ours, err = namesake.locked("/proc", e)
	require.NoError(t, err)
	require.False(t, ours)

	process.kill()
	_, err = id.locked("/proc", e)
	require.ErrorIs(t, err, errGone, "whose it was can't be told")
	e.waits = true
	ours, err = id.locked("/proc", e)
	require.NoError(t, err)
	require.False(t, ours)
}

// The kernel gives the table by pages; more locks than fit on one are read to the end.
func TestInspectReadsLongTable(t *testing.T) {
	path := lockFile(t)
	dir := t.TempDir()
	for i := range 100 {
		_, err := Acquire(filepath.Join(dir, fmt.Sprint(i)))
		require.NoError(t, err)
	}
	process := holder(t, path)
	_, whole, err := readTable("/proc")
	require.NoError(t, err)
	require.False(t, whole)
	require.Equal(t, []int{process.pid()}, pids(t, path))
}

func TestStartTimeOfProcessWithOddName(t *testing.T) {
	start, err := parseStart([]byte("7 (a) R 1 (b) c) S" + strings.Repeat(" 1", 18) + " 4242 9\n"))
	require.NoError(t, err)
	require.EqualValues(t, 4242, start)
	_, err = parseStart([]byte("7 (a) S 1\n"))
	require.Error(t, err)
}
