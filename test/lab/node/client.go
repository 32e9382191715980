package node

import (
	"fmt"
	"net/rpc"
	"path/filepath"
	"strconv"
)

// Client gives orders to the process 1 whose number outside of the node is PID.
type Client struct{ PID int }

// Start runs a unit; see Supervisor.Start.
func (c Client) Start(u Unit) error { return c.call("Start", u, new(struct{})) }

// Stop ends a unit; see Supervisor.Stop.
func (c Client) Stop(s Stop) error { return c.call("Stop", s, new(struct{})) }

// List tells of every unit.
func (c Client) List() ([]Status, error) {
	var out []Status
	err := c.call("List", struct{}{}, &out)
	return out, err
}

func (c Client) call(method string, in, out any) error {
	// Through the process's root: the socket exists in the node's mounts alone,
	// and this path is short enough for a socket address wherever the lab lies.
	conn, err := rpc.Dial("unix", filepath.Join("/proc", strconv.Itoa(c.PID), "root", Socket))
	if err != nil {
		return fmt.Errorf("reach the node's process 1: %w", err)
	}
	defer conn.Close()
	return conn.Call(service+"."+method, in, out)
}
