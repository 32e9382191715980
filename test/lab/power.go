package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab/node"
	"golang.org/x/sys/unix"
)

// PowerCut ends everything on the node in one instant. The disk keeps what had
// reached the kernel; what is in memory, /run and /tmp is lost. Without power
// it does nothing.
func (l *Lab) PowerCut(ctx context.Context) error {
	pid, err := l.initPID()
	switch {
	case errors.Is(err, ErrNoPower):
	case err != nil:
		return fmt.Errorf("cut the power: %w", err)
	default:
		if err := kill(ctx, pid); err != nil {
			return fmt.Errorf("cut the power: %w", err)
		}
	}
	return l.cgroups().remove(ctx)
}

// kill kills the process 1 of a node and waits for its end, which is after that
// of every other process in its namespace, pid_namespaces(7).
func kill(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("processes are still there after a minute"))
	defer cancel()
	return poll(ctx, 2*time.Millisecond, func() error {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if err == nil && n == 0 {
			err = errors.New("process 1 is still there")
		}
		return err
	})
}

// Boot gives the node power, and starts what a machine starts at boot: etcd,
// the runtime, then the kubelet and the rest. It returns when the kubelet has
// been started.
func (l *Lab) Boot(ctx context.Context) error {
	if err := l.powerOn(ctx); err != nil {
		return err
	}
	return l.StartAll(ctx)
}

// Reboot is PowerCut and Boot.
func (l *Lab) Reboot(ctx context.Context) error {
	if err := l.timed("power cut", func() error { return l.PowerCut(ctx) }); err != nil {
		return err
	}
	return l.timed("boot, until the kubelet was started", func() error { return l.Boot(ctx) })
}

// powerOn starts the node's process 1 alone.
func (l *Lab) powerOn(ctx context.Context) error {
	if pid, err := l.initPID(); err == nil {
		return fmt.Errorf("boot: the node is up, its process 1 is %d", pid)
	}
	groups := l.cgroups()
	if err := errors.Join(groups.remove(ctx), groups.make()); err != nil {
		return err
	}
	plan, err := l.plan()
	if err != nil {
		return err
	}
	if err := plan.Write(l.planPath()); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(l.logDir(), "init.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(l.made.Init, l.planPath()) // outlives ctx and this process
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &unix.SysProcAttr{
		Setsid:     true, // Ctrl-C is for the lab, not for the node
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	if err := inNetwork(l.network().node(), cmd.Start); err != nil {
		return fmt.Errorf("start the node's process 1: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // or it would stay a zombie of ours
	return l.awaitInit(ctx, ended)
}

func (l *Lab) awaitInit(ctx context.Context, ended <-chan error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errors.New("no answer for 20 s"))
	defer cancel()
	var dead error
	err := poll(ctx, 5*time.Millisecond, func() error {
		select {
		case err := <-ended:
			dead = fmt.Errorf("node's process 1 ended (%w), see %s/init.log", err, l.logDir())
			return nil
		default:
		}
		c, err := l.client()
		if err == nil {
			_, err = c.List()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for the node's process 1: %w", err)
	}
	return dead
}

// plan is a new boot of the same machine: its boot id is new, its machine-id is not.
func (l *Lab) plan() (node.Plan, error) {
	p := node.Plan{
		Hostname:  l.options.Node,
		BootID:    newUUID(),
		MachineID: keyOf("machine", l.diskDir()) + keyOf("id", l.diskDir()),
		Mount:     filepath.Join(l.dir, "root"),
		Binds: []node.Bind{
			{From: l.made.Kubernetes, To: kubernetesDir, ReadOnly: true},
			{From: l.made.Containerd, To: containerdDir, ReadOnly: true},
			{From: l.made.Debian, To: debianDir, ReadOnly: true},
			{From: filepath.Join(l.made.Debian, "usr/lib/cni"), To: "/opt/cni/bin", ReadOnly: true},
			{From: l.logDir(), To: nodeLogs},
		},
	}
	for _, dir := range diskFolders {
		p.Binds = append(p.Binds, node.Bind{From: filepath.Join(l.diskDir(), dir), To: dir})
	}
	return p, errors.Join(os.MkdirAll(p.Mount, 0o755), l.makeDisk())
}

// makeDisk makes the disk's folders, as far as they are absent.
func (l *Lab) makeDisk() error {
	var errs []error
	for _, dir := range append([]string{"/etc/kubernetes/manifests"}, diskFolders...) {
		mode := os.FileMode(0o755)
		if dir == "/var/lib/etcd" || dir == "/var/lib/pod-checkpointer" {
			mode = 0o700
		}
		errs = append(errs, os.MkdirAll(filepath.Join(l.diskDir(), dir), mode))
	}
	return errors.Join(append(errs, os.MkdirAll(l.logDir(), 0o755))...)
}

// newUUID is what the kernel makes of a boot id: a random UUID of version 4.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, crypto/rand
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	text := fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	return strings.ToLower(text)
}
