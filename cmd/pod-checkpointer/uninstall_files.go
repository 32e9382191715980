package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// kept are the names below --state-dir that are the daemon's, in the order in which
// they are removed: the credentials first, the writer's lock last.
var kept = []string{
	"kubeconfig", "activations", "workloads", "payloads", "quarantine", "journal", "node.json",
	filepath.Base(store.LockPath("/")),
}

// tell says what there is to be done.
func (u *uninstaller) tell(s *sighting) {
	c := u.config
	fmt.Fprintln(u.out, "plan:")
	for _, found := range s.listing.Copies {
		u.did("  remove", filepath.Join(c.StaticPodDir, found.File)+", the daemon's static copy, and wait until it has ended")
	}
	for _, m := range s.listing.Ours {
		u.did("  remove", filepath.Join(c.StaticPodDir, m.File)+", a checkpoint of "+m.Namespace+"/"+m.Workload+", and wait until it has ended")
	}
	if exists(c.StateDir) {
		u.did("  remove", c.StateDir+", the copies with their Secrets, and the credentials")
	}
	verb, why := "  remove", ""
	if users := s.users(); len(users) > 0 {
		verb, why = "  leave ", ", of use to "+strings.Join(users, ", ")
	}
	for _, dir := range []string{c.BinDir, c.LockDir} {
		if exists(dir) {
			u.did(verb, dir+why)
		}
	}
}

// removeState removes what the daemon keeps, and the directory if nothing of others
// is in it. The lock goes last: a daemon that waits for it sees that and starts anew.
func (u *uninstaller) removeState() error {
	dir, err := durable.Open(u.config.StateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open --state-dir: %w", err)
	}
	if err := dir.Clean(); err != nil {
		return err
	}
	for _, name := range kept {
		if err := dir.RemoveAll(name); err != nil {
			return err
		}
	}
	return u.removeDir(dir)
}

// removeDir removes a directory that is empty, and else says why it stays.
func (u *uninstaller) removeDir(dir *durable.Dir) error {
	left, err := dir.ReadDir(".")
	if err != nil {
		return err
	}
	if len(left) > 0 {
		names := make([]string, len(left))
		for i, e := range left {
			names[i] = e.Name()
		}
		u.stay(dir.Path(), "it holds files that are not pod-checkpointer's: "+strings.Join(names, ", "))
		return nil
	}
	above, err := durable.Open(filepath.Dir(dir.Path()))
	if err != nil {
		return err
	}
	if err := above.Remove(filepath.Base(dir.Path())); err != nil { // a mount, or a read-only file system
		u.stay(dir.Path(), "it is empty and can't be removed: "+err.Error())
		return nil
	}
	u.did("removed", dir.Path())
	return nil
}

// removeLocks removes lock-exec, this program and the lock files, unless somebody
// starts through them: without lock-exec a container can't start again, and a lock
// file that is removed under its holder excludes nobody any more.
func (u *uninstaller) removeLocks(s *sighting) error {
	c := u.config
	if users := s.users(); len(users) > 0 {
		why := "of use to " + strings.Join(users, ", ")
		for _, path := range []string{filepath.Join(c.BinDir, "lock-exec"), c.LockDir} {
			if exists(path) {
				u.stay(path, why)
			}
		}
		if program := filepath.Join(c.BinDir, "pod-checkpointer"); exists(program) {
			u.stay(program, "run its uninstall again when nothing starts through lock-exec any more")
		}
		return nil
	}
	var locks []string
	for _, state := range s.locks {
		locks = append(locks, filepath.Base(state.Path))
	}
	if err := u.removeFiles(c.LockDir, locks); err != nil {
		return err
	}
	// This program last, since it may be the one that runs.
	return u.removeFiles(c.BinDir, installed)
}

func (u *uninstaller) removeFiles(path string, names []string) error {
	if !exists(path) {
		return nil
	}
	dir, err := durable.Open(path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := dir.Remove(name); err != nil {
			return err
		}
	}
	return u.removeDir(dir)
}
