//go:build e2e

package bench

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
)

const (
	// calm is how long nothing has happened when the daemon is said to be at rest.
	calm = 75 * time.Second
	// window is how long one value of what is counted over time takes.
	window = 30 * time.Second
	// limited is the number of pods that the limits hold for.
	limited = 110

	stateDir, staticPods = "/var/lib/pod-checkpointer", "/etc/kubernetes/manifests"
)

// measureRest looks at a daemon that has nothing to do, among ever more pods.
func measureRest(ctx context.Context, t *testing.T, p programs, add func(row)) {
	var sizes []int
	for word := range strings.SplitSeq(*crowds, ",") {
		n, err := strconv.Atoi(word)
		require.NoError(t, err, "-bench.pods")
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	l := up(ctx, t, lab.Options{
		Name: "bench-rest", LockExec: p.lockExec, PodCheckpointer: p.podCheckpointer, MaxPods: slices.Max(sizes) + 20,
	})
	workloads, err := protectMore(ctx, l)
	require.NoError(t, err)
	for _, pods := range sizes {
		require.NoError(t, crowd(ctx, l, pods))
		require.NoError(t, told(ctx, l, time.Now(), "all are protected and known to be good", func(s checkpoint.Status) bool {
			return all(s, workloads, func(w checkpoint.WorkloadStatus) bool {
				return w.State == checkpoint.Protected && w.Generation > 0 && w.KnownGood == w.Generation
			})
		}))
		require.NoError(t, pause(ctx, calm))
		rows, err := watchRest(ctx, l, pods, len(workloads))
		require.NoError(t, err)
		for _, r := range rows {
			add(r)
		}
	}
}

// watchRest looks at both copies of the daemon for -bench.rest.
func watchRest(ctx context.Context, l *lab.Lab, pods, protected int) ([]row, error) {
	leader, waiter, err := copies(l)
	if err != nil {
		return nil, err
	}
	of := fmt.Sprintf("at rest, %d pods, %d protected: ", pods, protected)
	watched := []*resting{newResting(of+"leading copy", leader)}
	if waiter != 0 {
		watched = append(watched, newResting(of+"waiting copy", waiter))
	}
	requests := series{what: of + "API requests beside watches", unit: perMinute}
	files := series{what: of + "files changed", unit: each}
	begin := time.Now()
	for _, r := range watched {
		if err := r.begin(); err != nil {
			return nil, err
		}
	}
	for end := begin.Add(*rest); time.Now().Before(end); {
		n, err := watchWindow(ctx, l, watched, min(window, time.Until(end)))
		if err != nil {
			return nil, err
		}
		files.values = append(files.values, float64(n))
	}
	if err := stillSo(ctx, l, leader, waiter); err != nil {
		return nil, err
	}
	n, err := asked(l, begin, time.Now())
	if err != nil {
		return nil, err
	}
	requests.values = []float64{n}

	rows := watched[0].rows(pods)
	rows = append(rows, row{series: requests, limit: only(pods, 2)}, row{series: files, limit: only(pods, 0), of: slices.Max[[]float64]})
	for _, r := range watched[1:] {
		rows = append(rows, r.rows(pods)...)
	}
	for _, r := range rows {
		value, u := r.result()
		say("%s: %s", r.what, u.of(value))
	}
	return rows, nil
}

// watchWindow looks each second for d, then counts what was used in that time,
// and returns how many files changed.
func watchWindow(ctx context.Context, l *lab.Lab, watched []*resting, d time.Duration) (int, error) {
	was, err := stamps(l)
	if err != nil {
		return 0, err
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		if err := pause(ctx, min(time.Second, time.Until(end))); err != nil {
			return 0, err
		}
		for _, r := range watched {
			if err := r.look(); err != nil {
				return 0, err
			}
		}
	}
	for _, r := range watched {
		if err := r.count(); err != nil {
			return 0, err
		}
	}
	is, err := stamps(l)
	return changed(was, is), err
}

// stillSo is an error unless these are still the copies of the daemon. It says
// which sources the leading one does not know: it may rest for want of an answer.
func stillSo(ctx context.Context, l *lab.Lab, leader, waiter int) error {
	now, other, err := copies(l)
	if err != nil {
		return err
	}
	if now != leader || other != waiter {
		return fmt.Errorf("the daemon's copies were processes %d and %d, and are %d and %d", leader, waiter, now, other)
	}
	status, err := statusOf(ctx, l)
	for _, source := range status.Sources {
		if !source.Known {
			say("at rest the daemon does not know the %s: %s", source.Name, source.Why)
		}
	}
	return err
}

// only is a limit that holds for one number of pods, and beside which the others are read.
func only(pods int, limit float64) *float64 {
	if pods != limited {
		return nil
	}
	return &limit
}

// resting is a copy of the daemon that is watched.
type resting struct {
	process
	at              time.Time
	used, container time.Duration
	sent            float64

	memory, anonymous, cpu, probes, disk series
}

func newResting(what string, pid int) *resting {
	return &resting{
		process:   process(pid),
		memory:    series{what: what + ", resident", unit: megabytes},
		anonymous: series{what: what + ", anonymous part", unit: megabytes},
		cpu:       series{what: what + ", CPU", unit: percent},
		probes:    series{what: what + ", CPU of its probes", unit: percent},
		disk:      series{what: what + ", written to disks", unit: bytesWritten},
	}
}

// begin is where the first window begins.
func (r *resting) begin() (err error) {
	r.at = time.Now()
	if r.used, err = r.process.cpu(); err != nil {
		return err
	}
	if r.container, err = r.process.cgroupCPU(); err != nil {
		return err
	}
	r.sent, err = r.written()
	return err
}

// look reads what is now.
func (r *resting) look() error {
	resident, anonymous, err := r.process.memory()
	r.memory.values = append(r.memory.values, resident)
	r.anonymous.values = append(r.anonymous.values, anonymous)
	return err
}

// count ends a window and begins the next one.
func (r *resting) count() error {
	before := *r
	if err := r.begin(); err != nil {
		return err
	}
	share := func(used time.Duration) float64 { return 100 * float64(used) / float64(r.at.Sub(before.at)) }
	used := r.used - before.used
	r.cpu.values = append(r.cpu.values, share(used))
	r.probes.values = append(r.probes.values, share(max(0, r.container-before.container-used)))
	r.disk.values = append(r.disk.values, r.sent-before.sent)
	return nil
}

// rows are what it came to: the most memory and disk writes, and the CPU of all the time.
func (r *resting) rows(pods int) []row {
	most := slices.Max[[]float64]
	return []row{
		{series: r.memory, limit: only(pods, 20), of: most},
		{series: r.anonymous, of: most},
		{series: r.cpu, limit: only(pods, 0.1), of: mean},
		{series: r.probes, of: mean},
		{series: r.disk, limit: only(pods, 0), of: most},
	}
}

// copies are the processes of the daemon: the one that holds the lock of the
// state directory, and the first that waits for it, or 0.
func copies(l *lab.Lab) (leader, waiter int, err error) {
	path, err := l.NodePath(stateDir + "/lock")
	if err != nil {
		return 0, 0, err
	}
	state, err := lock.Inspect("/proc", path)
	switch {
	case err != nil:
		return 0, 0, err
	case state.Holder == nil:
		return 0, 0, fmt.Errorf("no copy of the daemon leads")
	case len(state.Waiters) > 0:
		waiter = state.Waiters[0].PID
	}
	return state.Holder.PID, waiter, nil
}

// stamp changes with each write to a file, and with each name that a directory
// gets or loses.
type stamp struct {
	inode   uint64
	size    int64
	changed unix.Timespec
}

// stamps are those of all that the daemon could write to.
func stamps(l *lab.Lab) (map[string]stamp, error) {
	all := map[string]stamp{}
	for _, dir := range []string{stateDir, staticPods} {
		root, err := l.NodePath(dir)
		if err != nil {
			return nil, err
		}
		some, err := stampsBelow(root)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, some)
	}
	return all, nil
}

func stampsBelow(root string) (map[string]stamp, error) {
	all := map[string]stamp{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		all[path] = stamp{st.Ino, st.Size, st.Ctim}
		return nil
	})
	return all, err
}

// changed is how many files and directories came, went or were written to.
func changed(was, is map[string]stamp) (n int) {
	for path := range maps.Keys(was) {
		if is[path] != was[path] {
			n++
		}
	}
	for path := range is {
		if _, ok := was[path]; !ok {
			n++
		}
	}
	return n
}

// asked is how many requests a minute the daemon made between two times beside
// watches, by the API server's own log.
func asked(l *lab.Lab, begin, end time.Time) (float64, error) {
	all, err := l.Audit()
	if err != nil {
		return 0, err
	}
	counts := map[string]int{}
	n := 0
	for _, r := range all {
		if r.At.Before(begin) || r.At.After(end) {
			continue
		}
		counts[strings.TrimSpace(r.Verb+" "+r.Resource+" "+r.Subresource)]++
		if r.Verb != "watch" {
			n++
		}
	}
	say("asked of the API server in %s: %v", end.Sub(begin).Round(time.Second), counts)
	return float64(n) / end.Sub(begin).Minutes(), nil
}
