package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// network is the lab's own: the node's namespace, which outlives power cuts as
// a cable does, and one for the switch at the other end.
type network struct{ node, fabric string }

func networkOf(lab string) network {
	return network{node: "podckpt-" + lab, fabric: "podckpt-" + lab + "-switch"}
}

// path is the node's namespace as a file.
func (n network) path() string { return filepath.Join("/run/netns", n.node) }

// make makes it. The kubelet refuses a loopback address as its node's, so that
// the node needs an interface with an address and a default route.
func (n network) make(ctx context.Context) error {
	for _, args := range [][]string{
		{"netns", "add", n.node},
		{"netns", "add", n.fabric},
		{"-n", n.node, "link", "add", "eth0", "type", "veth", "peer", "name", "port1", "netns", n.fabric},
		{"-n", n.fabric, "link", "add", "br0", "type", "bridge"},
		{"-n", n.fabric, "link", "set", "port1", "master", "br0", "up"},
		{"-n", n.fabric, "link", "set", "br0", "up"},
		{"-n", n.fabric, "addr", "add", switchIP + "/24", "dev", "br0"},
		{"-n", n.node, "link", "set", "lo", "up"},
		{"-n", n.node, "link", "set", "eth0", "up"},
		{"-n", n.node, "addr", "add", nodeIP + "/24", "dev", "eth0"},
		{"-n", n.node, "route", "add", "default", "via", switchIP},
	} {
		if _, err := output(ctx, "/", "ip", args...); err != nil {
			return fmt.Errorf("make the node's network: %w", err)
		}
	}
	return nil
}

// remove takes it away, as far as it is there.
func (n network) remove(ctx context.Context) error {
	for _, name := range []string{n.node, n.fabric} {
		if _, err := os.Stat(filepath.Join("/run/netns", name)); err != nil {
			continue
		}
		if _, err := output(ctx, "/", "ip", "netns", "delete", name); err != nil {
			return fmt.Errorf("remove the node's network: %w", err)
		}
	}
	return nil
}
