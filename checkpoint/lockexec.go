package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
)

// lockExec is the name of the launcher and probe in --bin-dir.
const lockExec = "lock-exec"

// LockExec looks whether a container could run lock-exec out of --bin-dir.
func (h *Host) LockExec() error {
	path := filepath.Join(h.config.BinDir, lockExec)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is no program", path)
	}
	return nil
}

// lockExecMissing: what runs goes on without it, and starts no more, neither parent
// nor checkpoint.
func (o *observer) lockExecMissing(f facts) []string {
	if f.LockExec != filepath.Join(o.config.BinDir, lockExec) {
		return nil
	}
	if err := o.sources.LockExec(); err != nil {
		return []string{fmt.Sprintf("LockExecMissing: %v: without it no container of this workload starts again; put it there by pod-checkpointer install", err)}
	}
	return nil
}
