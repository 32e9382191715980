package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupMount = "/sys/fs/cgroup"

// cgroups are the node's, one folder in each of the machine's hierarchies.
type cgroups struct{ root string } // "/podckpt-lab-0123456789abcdef"

// cgroups are named for the lab's folder too: those of another user's lab with
// the same name are not ours to remove.
func (l *Lab) cgroups() cgroups {
	return cgroups{root: "/podckpt-" + l.options.Name + "-" + keyOf(l.dir)}
}

// cgroupV2 tells whether the machine has the unified hierarchy alone.
func cgroupV2() bool {
	var st unix.Statfs_t
	return unix.Statfs(cgroupMount, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// hierarchies are the mount points of cgroup file systems.
func hierarchies() ([]string, error) {
	if cgroupV2() {
		return []string{cgroupMount}, nil
	}
	entries, err := os.ReadDir(cgroupMount)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		var st unix.Statfs_t
		dir := filepath.Join(cgroupMount, e.Name())
		if e.IsDir() && unix.Statfs(dir, &st) == nil &&
			(st.Type == unix.CGROUP_SUPER_MAGIC || st.Type == unix.CGROUP2_SUPER_MAGIC) {
			out = append(out, dir)
		}
	}
	return out, nil
}

// make makes the node's cgroups. The kubelet demands that its cgroupRoot is
// there in every hierarchy before it starts.
func (c cgroups) make() error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		dir := root + c.root
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make the node's cgroup: %w", err)
		}
		if err := c.inherit(root, dir); err != nil {
			return fmt.Errorf("set up the node's cgroup: %w", err)
		}
	}
	return nil
}

// inherit passes on what a new cgroup does not get by itself: in v1 the
// processors and memory nodes, in v2 the controllers.
func (c cgroups) inherit(root, dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0)
		}
		if err != nil {
			return err
		}
	}
	if !cgroupV2() {
		return nil
	}
	have, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, controller := range bytes.Fields(have) {
		for _, at := range []string{root, dir} {
			// One that can't be passed on is one that the kubelet does without, or names itself.
			_ = os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), append([]byte("+"), controller...), 0)
		}
	}
	return nil
}

// remove removes them, which a real power cut would do: for each one that is
// left from before, a starting kubelet waits 3 s. The kernel lets go of a
// cgroup a moment after its last process, so that it is tried for 10 s.
func (c cgroups) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		err := poll(ctx, 20*time.Millisecond, func() error { return removeCgroup(root + c.root) })
		if err != nil {
			return fmt.Errorf("remove the node's cgroups: %w", err)
		}
	}
	return nil
}

func removeCgroup(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, d := range slices.Backward(dirs) { // children first
		if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// poll calls try every interval until it returns nil or ctx ends; then its
// error is the last one of try.
func poll(ctx context.Context, interval time.Duration, try func() error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}
