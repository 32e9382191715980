// Package node is the inside of the lab's node: what its process 1 does, and
// how the lab outside asks for it.
//
// The node shares the machine's kernel and programs and nothing else that can
// be written to: its root is an overlay whose upper half lies in memory, with
// the folders that make up the node's disk bound into it. Ending process 1
// is a power cut: the kernel kills everything in its process namespace, and
// memory, /run and mounts go with it, while the disk's folders stay as they are.
package node

import (
	"encoding/json"
	"fmt"
	"os"
)

// Socket is where process 1 takes orders, as a path inside of the node.
const Socket = "/run/lab/init.sock"

// Plan says what the node's root is made of.
type Plan struct {
	Hostname  string
	BootID    string // seen at /proc/sys/kernel/random/boot_id; a UUID
	MachineID string // seen at /etc/machine-id; 32 hex digits
	Mount     string // an empty directory of the machine that the root is built on
	Binds     []Bind // made in this order
}

// Bind shows a folder of the machine at a path inside of the node, which is
// made if it is absent.
type Bind struct {
	From, To string
	ReadOnly bool
}

// Write stores the plan where ReadPlan finds it.
func (p Plan) Write(path string) error {
	data, err := json.MarshalIndent(p, "", "\t")
	if err != nil {
		return fmt.Errorf("encode plan: %w", err)
	}
	return os.WriteFile(path, data, 0o600)
}

// ReadPlan reads what Write wrote.
func ReadPlan(path string) (Plan, error) {
	var p Plan
	data, err := os.ReadFile(path)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("decode plan %s: %w", path, err)
	}
	return p, nil
}
