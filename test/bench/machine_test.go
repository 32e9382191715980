//go:build e2e

package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// machine says what the numbers were measured on.
func machine(disk string) []string {
	var uname unix.Utsname
	_ = unix.Uname(&uname) // never fails with a valid pointer, uname(2)
	return []string{
		fmt.Sprintf("machine: %s, %d cores, memory %s", field("/proc/cpuinfo", "model name"), runtime.NumCPU(), field("/proc/meminfo", "MemTotal")),
		fmt.Sprintf("system:  Linux %s, %s, disk %s", unix.ByteSliceToString(uname.Release[:]), runtime.Version(), filesystem(disk)),
		fmt.Sprintf("load:    %s (1, 5 and 15 minutes) before the first run", strings.Join(words("/proc/loadavg", 3), " ")),
	}
}

// field is the first value of a file with lines "key: value".
func field(file, key string) string {
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return "unknown " + key
}

func words(file string, n int) []string {
	data, _ := os.ReadFile(file)
	all := strings.Fields(string(data))
	return all[:min(n, len(all))]
}

// filesystem is the type and device of the mount that holds path.
func filesystem(path string) string {
	data, _ := os.ReadFile("/proc/self/mounts")
	best, what := "", "unknown"
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) > 2 && len(f[1]) >= len(best) && strings.HasPrefix(path+"/", strings.TrimSuffix(f[1], "/")+"/") {
			best, what = f[1], f[2]+" on "+f[0]
		}
	}
	return what
}

// measureFsync is the baseline: the price of one durable file.
func measureFsync(_ context.Context, t *testing.T, p programs, add func(row)) {
	dir := filepath.Join(p.disk, "fsync")
	require.NoError(t, os.Mkdir(dir, 0o700))
	s := series{what: "fsync: one durable file of 4 KiB", unit: milliseconds}
	for range max(*runs, 11) {
		begin := time.Now()
		require.NoError(t, durableFile(dir))
		s.values = append(s.values, s.unit.duration(time.Since(begin)))
	}
	add(row{series: s})
}

// durableFile is what durable does, with nothing around it.
func durableFile(dir string) error {
	file, err := os.OpenFile(filepath.Join(dir, ".new"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(make([]byte, 4096)); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), filepath.Join(dir, "file")); err != nil {
		return err
	}
	parent, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer parent.Close()
	return parent.Sync()
}

// measureSize tells how large the programs are.
func measureSize(_ context.Context, t *testing.T, p programs, add func(row)) {
	for path, limit := range map[string]float64{p.podCheckpointer: 20, p.lockExec: 8} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		add(row{series: series{what: "size of " + filepath.Base(path), unit: mebibytes, values: []float64{float64(info.Size()) / (1 << 20)}}, limit: &limit})
	}
}
