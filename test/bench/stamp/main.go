// Command stamp prints CLOCK_MONOTONIC in nanoseconds, as early as it can.
package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func main() {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(now.Nano())
}
