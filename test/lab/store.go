package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/cri"
)

// provision fills the runtime's folder on the disk with images. Importing them
// takes seconds each time, so that a store with them in it is kept in the cache.
func (l *Lab) provision(ctx context.Context) error {
	key, err := l.made.storeKey()
	if err != nil {
		return err
	}
	disk := filepath.Join(l.diskDir(), "/var/lib/containerd")
	store, err := cache{l.options.Cache}.get(ctx, "images", key, func(dir string) error {
		return l.makeStore(ctx, disk, filepath.Join(dir, "store"))
	})
	if err != nil {
		return fmt.Errorf("make the store of images: %w", err)
	}
	if err := removeAll(disk); err != nil {
		return err
	}
	return cloneTree(filepath.Join(store, "store"), disk)
}

// makeStore boots the node with a runtime alone, which imports the images.
func (l *Lab) makeStore(ctx context.Context, disk, into string) error {
	if err := l.powerOn(ctx); err != nil {
		return err
	}
	if err := l.Start(ctx, Containerd); err != nil {
		return err
	}
	images, err := l.made.images()
	if err != nil {
		return err
	}
	for _, img := range images {
		if err := l.timed("import "+img.Ref, func() error { return l.importImage(ctx, img) }); err != nil {
			return err
		}
	}
	// In order, so that its database is whole.
	if err := errors.Join(l.Stop(Containerd), l.PowerCut(ctx)); err != nil {
		return err
	}
	return cloneTree(disk, into)
}

// importImage gives an image to the node's runtime.
func (l *Lab) importImage(ctx context.Context, img image) error {
	in, out := io.Pipe()
	go func() { _ = out.CloseWithError(img.write(out, runtime.GOARCH)) }() // which ctr's input ends with
	defer in.Close()                                                       // which ends it, if ctr ended before
	argv := ContainerdCommand("images", "import", "-")
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = in
	var text limited
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := l.Run(cmd); err != nil {
		return fmt.Errorf("import %s: %w: %s", img.Ref, err, text)
	}
	return nil
}

// ContainerdCommand is the command line, inside of the node, of containerd's client
// in the kubelet's namespace.
func ContainerdCommand(args ...string) []string {
	return append([]string{containerdDir + "/ctr", "--address", criSocket, "--namespace", "k8s.io"}, args...)
}

// limited keeps the end of what is written to it.
type limited []byte

func (t *limited) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	*t = (*t)[max(0, len(*t)-4096):]
	return len(p), nil
}

// awaitRuntime waits until the runtime serves, as systemd waits for its
// notification: its socket accepts connections a while before, and a kubelet that
// is told so ends itself.
func (l *Lab) awaitRuntime(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("no answer for 30 s"))
	defer cancel()
	pid, err := l.initPID()
	if err != nil {
		return err
	}
	client, err := cri.New("unix://" + filepath.Join("/proc", strconv.Itoa(pid), "root", criSocket))
	if err != nil {
		return err
	}
	defer client.Close()
	ended := false
	err = poll(ctx, 10*time.Millisecond, func() error {
		_, err := client.Pods(ctx)
		if err == nil {
			return nil
		}
		s, gone := l.Component(Containerd)
		if ended = gone == nil && s.PID == 0; ended {
			return nil // waiting longer is of no use
		}
		return err
	})
	if ended {
		err = errors.New("it ended at once")
	}
	if err != nil {
		return fmt.Errorf("wait for containerd, see %s: %w", l.Log(Containerd), err)
	}
	return nil
}
