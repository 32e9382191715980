package lab

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/lock"
	"github.com/pod-checkpointer/pod-checkpointer/test/lab/node"
	"golang.org/x/sync/errgroup"
)

const (
	lockDir  = "/run/lock/pod-checkpointer"
	lockExec = "/opt/pod-checkpointer/bin/lock-exec"
	// tempDir has what the programs read that run until the pods take over. It
	// is gone with the first power cut.
	tempDir = "/run/lab"
)

// temporary is its program on the node itself.
func (p part) temporary() Component { return Component(p.name + "-temporary") }

func (p part) lock() string { return lockDir + "/" + p.name + ".lock" }

// startStatic starts a cluster whose control plane is static pods.
func (l *Lab) startStatic(ctx context.Context, certs *pki) error {
	for _, p := range controlPlane {
		set, err := l.daemonSet(p)
		if err != nil {
			return err
		}
		if err := l.PlaceManifest(p.name+".yaml", plainStaticPod(set)); err != nil {
			return err
		}
	}
	if err := l.StartAll(ctx); err != nil {
		return err
	}
	if err := l.timed("static API server is ready", func() error { return l.AwaitReady(ctx) }); err != nil {
		return err
	}
	if err := l.timed("objects made, node registered", func() error { return l.apply(ctx, certs) }); err != nil {
		return err
	}
	return l.startDaemon(ctx)
}

// startSelfHosted starts a cluster whose control plane is DaemonSets, by way of
// one on the node itself that holds the same locks until the DaemonSets' pods
// wait for them.
func (l *Lab) startSelfHosted(ctx context.Context, certs *pki) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.startRuntime(groupCtx) })
	group.Go(func() error {
		return l.timed("temporary API server is ready", func() error { return l.startTemporary(groupCtx, certs) })
	})
	if err := group.Wait(); err != nil {
		return err
	}
	// Not before there is an API server, from which its reflectors would have backed off.
	if err := l.Start(ctx, Kubelet); err != nil {
		return err
	}
	if err := l.timed("objects made, node registered", func() error { return l.apply(ctx, certs) }); err != nil {
		return err
	}
	if err := l.startDaemon(ctx); err != nil {
		return err
	}
	for _, p := range controlPlane {
		set, err := l.daemonSet(p)
		if err != nil {
			return err
		}
		if err := l.create(ctx, daemonSets, systemSpace, set); err != nil {
			return err
		}
	}
	if err := l.timed("control plane's pods wait", func() error { return l.awaitWaiters(ctx) }); err != nil {
		return err
	}
	return l.timed("self-hosted control plane serves", func() error { return l.handOver(ctx) })
}

// startDaemon starts pod-checkpointer, without which nothing that starts through
// lock-exec could.
func (l *Lab) startDaemon(ctx context.Context) error {
	if l.options.NoDaemon {
		path := filepath.Join(l.diskDir(), lockExec)
		return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), copyFile(l.made.LockExec, path, 0o755))
	}
	return l.timed("pod-checkpointer has installed lock-exec", func() error { return l.applyDaemon(ctx) })
}

// startRuntime starts containerd and gives it the daemon's image.
func (l *Lab) startRuntime(ctx context.Context) error {
	if err := l.Start(ctx, Containerd); err != nil {
		return err
	}
	if l.options.NoDaemon {
		return nil
	}
	img, err := l.made.daemonImage()
	if err != nil {
		return err
	}
	return l.importImage(ctx, img)
}

// startTemporary starts the control plane on the node itself and returns when
// its API server is ready.
func (l *Lab) startTemporary(ctx context.Context, certs *pki) error {
	if err := l.Start(ctx, Etcd); err != nil {
		return err
	}
	temp, err := l.NodePath(tempDir)
	if err != nil {
		return err
	}
	locks, err := l.NodePath(lockDir)
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(temp, 0o700), os.MkdirAll(locks, 0o755)); err != nil {
		return err
	}
	if err := copyFile(l.made.LockExec, temp+"/lock-exec", 0o755); err != nil {
		return err
	}
	for _, p := range controlPlane {
		set, err := l.daemonSet(p)
		if err != nil {
			return err
		}
		if err := certs.write(temp+"/"+p.name, p.files); err != nil {
			return err
		}
		argv := temporary(set, tempDir+"/lock-exec", tempDir+"/"+p.name)
		if p.name != apiServer {
			argv = append(argv, "--leader-elect=false") // or its heir would wait for the end of its lease
		}
		// The controller manager ends itself after 10 s without an API server.
		if err := l.startUnit(node.Unit{Name: string(p.temporary()), Argv: argv, Restart: true}); err != nil {
			return err
		}
	}
	return l.AwaitReady(ctx)
}

// awaitWaiters waits until a pod of each part waits for its lock.
func (l *Lab) awaitWaiters(ctx context.Context) error {
	return poll(ctx, 50*time.Millisecond, func() error {
		for _, p := range controlPlane {
			state, err := l.lockOf(p)
			if err != nil {
				return err
			}
			if len(state.Waiters) == 0 || state.Waiters[0].PodUID == "" {
				return fmt.Errorf("no pod waits for the lock of %s", p.name)
			}
		}
		return nil
	})
}

// handOver ends the temporary programs and waits until the pods serve.
func (l *Lab) handOver(ctx context.Context) error {
	for _, p := range controlPlane {
		if err := l.Kill(p.temporary()); err != nil {
			return err
		}
		if err := poll(ctx, 20*time.Millisecond, func() error { return l.serves(ctx, p) }); err != nil {
			return err
		}
	}
	return nil
}

// serves is nil if the part's lock is a pod's, and its holder says that it serves.
func (l *Lab) serves(ctx context.Context, p part) error {
	state, err := l.lockOf(p)
	if err != nil {
		return err
	}
	if state.Holder == nil || state.Holder.PodUID == "" {
		return fmt.Errorf("lock of %s is held by no pod", p.name)
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: l.Dial, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // a certificate that each process makes for itself
	}}
	return call(ctx, client, http.MethodGet, p.health, nil, nil)
}

// lockOf is what the kernel says of the part's lock.
func (l *Lab) lockOf(p part) (lock.State, error) {
	path, err := l.NodePath(p.lock())
	if err != nil {
		return lock.State{}, err
	}
	return lock.Inspect("/proc", path)
}
