package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab/node"
)

// Component is a program that runs on the node itself, not in a pod.
type Component string

// Boot starts them in this order.
const (
	Etcd       Component = "etcd"
	Containerd Component = "containerd"
	Kubelet    Component = "kubelet"
)

// Where the node sees what the lab runs.
const (
	kubernetesDir = "/opt/lab/kubernetes"
	containerdDir = "/opt/lab/containerd"
	debianDir     = "/opt/lab/debian"
	nodeLogs      = "/var/log/lab"
	nodePath      = kubernetesDir + ":" + containerdDir + ":" + debianDir + "/usr/bin:" + debianDir + "/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// Start starts a component that does not run. For Containerd it returns when
// its socket answers.
func (l *Lab) Start(ctx context.Context, c Component) error {
	unit, err := l.unit(c)
	if err != nil {
		return err
	}
	if err := l.startUnit(unit); err != nil {
		return err
	}
	if c != Containerd {
		return nil
	}
	return l.awaitRuntime(ctx)
}

// StartAll starts all components, as a boot does.
func (l *Lab) StartAll(ctx context.Context) error {
	for _, c := range []Component{Etcd, Containerd, Kubelet} {
		if err := l.Start(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends a component for good with SIGTERM, after 10 s with SIGKILL, and
// returns when it is gone. Containers outlive containerd and kubelet.
func (l *Lab) Stop(c Component) error {
	return l.stopUnit(node.Stop{Name: string(c), Signal: syscall.SIGTERM, Wait: 10 * time.Second})
}

// Kill ends a component for good with SIGKILL, and returns when it is gone.
func (l *Lab) Kill(c Component) error {
	return l.stopUnit(node.Stop{Name: string(c), Signal: syscall.SIGKILL, Wait: 10 * time.Second})
}

// Signal sends a signal, SIGSTOP or SIGCONT say, and returns at once.
func (l *Lab) Signal(c Component, signal syscall.Signal) error {
	return l.stopUnit(node.Stop{Name: string(c), Signal: signal, Keep: true})
}

// Components tells of all that was started since the node booted.
func (l *Lab) Components() ([]node.Status, error) {
	c, err := l.client()
	if err != nil {
		return nil, err
	}
	return c.List()
}

// Component tells of one; its PID is that inside of the node (see HostPID).
func (l *Lab) Component(c Component) (node.Status, error) {
	all, err := l.Components()
	if err != nil {
		return node.Status{}, err
	}
	for _, s := range all {
		if s.Name == string(c) {
			return s, nil
		}
	}
	return node.Status{}, fmt.Errorf("%s was not started since the node booted", c)
}

// Log is the file with all that a component has printed, over all boots.
func (l *Lab) Log(c Component) string { return filepath.Join(l.logDir(), string(c)+".log") }

func (l *Lab) startUnit(u node.Unit) error {
	c, err := l.client()
	if err != nil {
		return fmt.Errorf("start %s: %w", u.Name, err)
	}
	u.Log = filepath.Join(nodeLogs, u.Name+".log")
	if u.Env == nil {
		u.Env = []string{"PATH=" + nodePath, "HOME=/root"}
	}
	return c.Start(u)
}

func (l *Lab) stopUnit(stop node.Stop) error {
	c, err := l.client()
	if err != nil {
		return fmt.Errorf("stop %s: %w", stop.Name, err)
	}
	return c.Stop(stop)
}

func (l *Lab) unit(c Component) (node.Unit, error) {
	u := node.Unit{Name: string(c), Argv: []string{kubernetesDir + "/" + string(c)}}
	flags := []string(nil)
	switch c {
	case Etcd:
		flags = etcdFlags
	case Containerd:
		u.Argv = []string{containerdDir + "/containerd", "--config=/etc/containerd/config.toml"}
		libraries, err := filepath.Glob(filepath.Join(l.made.Debian, "usr/lib/*-linux-*"))
		if err != nil || len(libraries) != 1 {
			return u, errors.Join(err, fmt.Errorf("find the libraries of runc: %q", libraries))
		}
		u.Env = []string{"PATH=" + nodePath, "LD_LIBRARY_PATH=" + debianDir + "/usr/lib/" + filepath.Base(libraries[0])}
	case Kubelet:
		flags = []string{
			"--config=/etc/kubernetes/kubelet.yaml", "--kubeconfig=/etc/kubernetes/kubelet.conf",
			"--hostname-override=" + l.options.Node, "--node-ip=" + nodeIP, "--root-dir=/var/lib/kubelet", "--v=3",
		}
	default:
		return u, fmt.Errorf("no component is named %q", c)
	}
	u.Argv = append(u.Argv, flags...)
	return u, nil
}

var etcdFlags = []string{
	"--name=lab", "--data-dir=/var/lib/etcd",
	"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
	"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
	"--initial-cluster=lab=http://127.0.0.1:2380",
}
