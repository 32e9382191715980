package lab

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func good() facts {
	f := facts{root: true, programs: map[string]bool{}, overlay: true, pidfd: true, memory: 8 * gib, disk: 20 * gib}
	for name := range neededPrograms {
		f.programs[name] = true
	}
	return f
}

func TestPreflightIsContentWithAGoodMachine(t *testing.T) {
	require.Empty(t, good().problems())
	f := good()
	f.memory, f.disk = 3*gib, 4*gib
	require.Empty(t, f.problems(), "enough while nothing is built")
}

func TestPreflightNamesEverythingAtOnce(t *testing.T) {
	text := strings.Join(facts{controllers: "memory, pids", stacked: true, cold: true, parts: []string{"etcd"}}.problems(), "\n")
	for _, want := range []string{
		"sudo", "program apt-get", "program dpkg", "program go", "program ip", "program mount", "overlayfs", "Linux 5.8",
		"without memory, pids", "memory: 0.0 GiB are available, 4 are needed", "disk: 0.0 GiB are free for the cache, 10 are needed",
		"XDG_CACHE_HOME", "lacks etcd",
	} {
		require.Contains(t, text, want)
	}
}

func TestPreflightTellsRootFromPower(t *testing.T) {
	f := good()
	f.missing = []string{"CAP_SYS_ADMIN"}
	require.Equal(t, []string{"root lacks CAP_SYS_ADMIN: run it outside of a container, or in a privileged one"}, f.problems())
	f.controllers = "none"
	require.Contains(t, f.problems()[1], "no cgroup file system")
}
