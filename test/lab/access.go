package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab/node"
	"golang.org/x/sys/unix"
)

// ErrNoPower is the error of what needs a running node.
var ErrNoPower = errors.New("node has no power")

// diskFolders are what the node keeps when its power is cut.
var diskFolders = []string{
	"/etc/cni", "/etc/containerd", "/etc/kubernetes", "/opt/pod-checkpointer",
	"/var/lib/containerd", "/var/lib/etcd", "/var/lib/kubelet", "/var/lib/pod-checkpointer",
	"/var/log/containers", "/var/log/pods",
}

// NodePath is where a path of the node is seen from outside. On the node's
// disk it holds with and without power; elsewhere (/run, /proc) it is that of
// the running node, and ErrNoPower without one. A symbolic link in it leads
// to where it would on the machine, not on the node.
func (l *Lab) NodePath(path string) (string, error) {
	for _, dir := range diskFolders {
		if rel, err := filepath.Rel(dir, path); err == nil && !strings.HasPrefix(rel, "..") {
			return filepath.Join(l.diskDir(), path), nil
		}
	}
	pid, err := l.initPID()
	if err != nil {
		return "", err
	}
	return filepath.Join("/proc", strconv.Itoa(pid), "root", path), nil
}

// CRISocket is the runtime's endpoint, as seen from outside, until the next
// power cut.
func (l *Lab) CRISocket() (string, error) {
	path, err := l.NodePath(criSocket)
	return "unix://" + path, err
}

// Exec runs a program inside of the node and returns what it printed. Its
// error holds what it complained about.
func (l *Lab) Exec(ctx context.Context, argv ...string) (string, error) {
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, "/usr/bin/env", argv...) // looks the program up in there
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := l.Run(cmd); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, tail(complaint.String(), 2000))
	}
	return out.String(), nil
}

// Run runs a command inside of the node instead of here. Its path must be an
// absolute one of the node, its folder is the node's /, and with no Env it gets
// the node's; it is ended like any other by its context.
func (l *Lab) Run(cmd *exec.Cmd) error {
	pid, err := l.initPID()
	if err != nil {
		return err
	}
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	if cmd.Env == nil { // nothing of this process's: proxies, KUBECONFIG
		cmd.Env = []string{"PATH=" + nodePath, "HOME=/root", "TERM=" + os.Getenv("TERM")}
	}
	const all = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET
	err = onThread(func() error {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		// Threads share a root, which none may change for the others.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Setns(fd, all); err != nil {
			return fmt.Errorf("enter the node: %w", err)
		}
		return cmd.Start()
	})
	if err != nil {
		return err
	}
	return cmd.Wait()
}

// Dial connects to an address as the node's own programs would: "127.0.0.1:6443"
// is the node's. It works, and is refused, with and without power.
func (l *Lab) Dial(ctx context.Context, netw, address string) (conn net.Conn, err error) {
	err = inNetwork(l.network().node(), func() error {
		conn, err = new(net.Dialer).DialContext(ctx, netw, address)
		return err
	})
	return conn, err
}

// onThread calls do on a thread of its own, which ends with it: what do changes
// of the thread's namespaces reaches nobody else.
func onThread(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the runtime ends the thread
		done <- do()
	}()
	return <-done
}

// client is for orders to the node's process 1.
func (l *Lab) client() (node.Client, error) {
	pid, err := l.initPID()
	return node.Client{PID: pid}, err
}

// initPID is the node's process 1, seen from outside. It is found by its
// command line, which names this lab's plan: no file could be wrong about it
// after a crash.
func (l *Lab) initPID() (int, error) {
	want := []byte("\x00" + l.planPath() + "\x00")
	pid, found, err := findProcess(func(dir string) bool {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !bytes.HasSuffix(line, want) {
			return false
		}
		numbers := nsPIDs(dir)
		return len(numbers) > 1 && numbers[len(numbers)-1] == 1
	})
	if err == nil && !found {
		err = ErrNoPower
	}
	return pid, err
}

// HostPID is a process of the node by its number outside, given the one inside.
func (l *Lab) HostPID(pid int) (int, error) {
	first, err := l.initPID()
	if err != nil {
		return 0, err
	}
	want, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(first), "ns/pid"))
	if err != nil {
		return 0, err
	}
	found, ok, err := findProcess(func(dir string) bool {
		numbers := nsPIDs(dir)
		if len(numbers) < 2 || numbers[len(numbers)-1] != pid {
			return false
		}
		ns, err := os.Readlink(filepath.Join(dir, "ns/pid"))
		return err == nil && ns == want
	})
	if err == nil && !ok {
		err = fmt.Errorf("node has no process %d", pid)
	}
	return found, err
}

// findProcess is the first process whose folder in /proc matches.
func findProcess(match func(dir string) bool) (pid int, ok bool, err error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, false, err
	}
	i := slices.IndexFunc(dirs, match)
	if i < 0 {
		return 0, false, nil
	}
	pid, err = strconv.Atoi(filepath.Base(dirs[i]))
	return pid, true, err
}

// nsPIDs are a process's numbers from the outermost namespace to its own.
func nsPIDs(dir string) []int {
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return nil // it has gone
	}
	_, rest, _ := strings.Cut(string(status), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	var out []int
	for _, word := range strings.Fields(line) {
		number, err := strconv.Atoi(word)
		if err != nil {
			return nil
		}
		out = append(out, number)
	}
	return out
}
