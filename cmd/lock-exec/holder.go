package main

import (
	"fmt"

	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// holder names who holds the lock at path, as far as can be seen from here:
// another container's processes are hidden from one with its own process ids.
func holder(path string) string {
	state, err := lock.Inspect("/proc", path)
	switch {
	case err != nil || state.Holder == nil:
		return "a process that can't be seen from here"
	case state.Holder.ContainerID != "":
		return fmt.Sprintf("pid %d of container %s", state.Holder.PID, state.Holder.ContainerID)
	}
	return fmt.Sprintf("pid %d", state.Holder.PID)
}
