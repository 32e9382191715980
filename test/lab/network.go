package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// network is the lab's own: the node's namespace, which outlives power cuts as
// a cable does, and one for the switch at the other end. Each is a file that
// the namespace is mounted on. (The ip command would keep them in /run/netns,
// which it turns into a mount that nobody takes away.)
type network struct{ dir string }

func (l *Lab) network() network { return network{filepath.Join(l.dir, "network")} }

func (n network) node() string   { return filepath.Join(n.dir, "node") }
func (n network) fabric() string { return filepath.Join(n.dir, "switch") }

// make makes it. The kubelet refuses a loopback address as its node's, so that
// the node needs an interface with an address and a default route.
func (n network) make(ctx context.Context) error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	for _, path := range []string{n.node(), n.fabric()} {
		if err := makeNamespace(path); err != nil {
			return fmt.Errorf("make network namespace %s: %w", path, err)
		}
	}
	for _, in := range []struct {
		namespace string
		commands  [][]string
	}{
		{n.node(), [][]string{
			{"link", "set", "lo", "up"},
			{"link", "add", "eth0", "type", "veth", "peer", "name", "port1", "netns", n.fabric()},
			{"link", "set", "eth0", "up"},
			{"addr", "add", nodeIP + "/24", "dev", "eth0"},
			{"route", "add", "default", "via", switchIP},
		}},
		{n.fabric(), [][]string{
			{"link", "add", "br0", "type", "bridge"},
			{"link", "set", "port1", "master", "br0", "up"},
			{"link", "set", "br0", "up"},
			{"addr", "add", switchIP + "/24", "dev", "br0"},
		}},
	} {
		for _, args := range in.commands {
			err := inNetwork(in.namespace, func() error {
				_, err := output(ctx, "/", "ip", args...)
				return err
			})
			if err != nil {
				return fmt.Errorf("make the node's network: %w", err)
			}
		}
	}
	return nil
}

// makeNamespace makes a network namespace that lives as long as path is mounted.
func makeNamespace(path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
	})
}

// remove takes it away, as far as it is there. Namespaces go when the last
// process and connection in them has gone.
func (n network) remove() error {
	for _, path := range []string{n.node(), n.fabric()} {
		err := unix.Unmount(path, unix.MNT_DETACH)
		// EINVAL: it is there and no mount.
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	return removeAll(n.dir)
}

// inNetwork calls do on a thread in the network namespace at path. Sockets and
// processes that it makes stay in there.
func inNetwork(path string, do func() error) error {
	return onThread(func() error {
		ns, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("enter network: %w", err)
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network %s: %w", path, err)
		}
		return do()
	})
}
