package lock

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkInspect is with a holder and two waiters, and locks on four other
// files of the directory, as on a self-hosted master.
func BenchmarkInspect(b *testing.B) {
	path := lockFile(b)
	holder(b, path)
	waiter(b, path)
	waiter(b, path)
	for _, name := range []string{"etcd", "scheduler", "controller-manager", "daemon"} {
		holder(b, filepath.Join(filepath.Dir(path), name))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Inspect("/proc", path); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHandover is from the SIGKILL of the holder to the exec of the waiter,
// which closes a descriptor that is marked so. The median leaves out the times
// when the machine did something else.
func BenchmarkHandover(b *testing.B) {
	path := lockFile(b)
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		old := holder(b, path)
		read, write, err := os.Pipe()
		require.NoError(b, err)
		next := start(b, "exec", []string{path, "cat"}, write)
		require.NoError(b, write.Close())
		awaitWaiter(b, path, next)
		b.StartTimer()

		died := time.Now()
		require.NoError(b, old.Process.Kill())
		_, err = read.Read(make([]byte, 1)) // until it is closed
		took = append(took, time.Since(died))
		b.StopTimer()
		require.Error(b, err)
		require.Equal(b, []int{next.pid()}, pids(b, path))
		require.NoError(b, read.Close())
		next.kill()
		old.kill()
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
}
