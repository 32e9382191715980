// Command pause is process 1 of the sandbox of every pod of the lab. It is a
// program of its own so that its image, and with it the lab's store of
// images, stays the same when the lab changes.
package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// main ends on SIGTERM or SIGINT, and until then reaps what the pod's
// containers orphan.
func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for got := range signals {
		if got != syscall.SIGCHLD {
			return
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 && !errors.Is(err, syscall.EINTR) {
				break
			}
		}
	}
}
