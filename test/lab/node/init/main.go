// Command init is process 1 of the lab's node.
package main

import (
	"fmt"
	"os"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab/node"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: init PLAN")
		os.Exit(2)
	}
	if err := node.Init(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
