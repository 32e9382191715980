package node

import (
	"fmt"
	"net"
	"net/rpc"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const service = "Node"

// Init is the whole life of the node's process 1. It returns only if the node
// can't be made.
func Init(planPath string) error {
	plan, err := ReadPlan(planPath)
	if err != nil {
		return err
	}
	if err := enter(plan); err != nil {
		return fmt.Errorf("make the node's root: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(Socket), 0o700); err != nil {
		return err
	}
	unix.Umask(0o022)
	server, s := rpc.NewServer(), newSupervisor(RestartDelay)
	if err := server.RegisterName(service, s); err != nil {
		return err
	}
	go s.reap()
	listener, err := net.Listen("unix", Socket)
	if err != nil {
		return fmt.Errorf("take orders: %w", err)
	}
	server.Accept(listener)
	return nil
}
