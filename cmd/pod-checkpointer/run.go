package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

func runCommand(getenv func(string) string, stderr io.Writer) *cobra.Command {
	c := checkpoint.Defaults()
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon",
		Long: `Run the daemon until SIGTERM. It then starts, stops and removes nothing.

Of several on one node the one that holds the lock of --state-dir leads; the others
wait for that lock and do nothing. A static pod makes way for a pod of a DaemonSet.

Each flag can also be set in the environment: --handoff-settle as
POD_CHECKPOINTER_HANDOFF_SETTLE. Logs are JSON on standard error, one line for
each thing that changed.`,
		Example: `  # on a control plane node
  pod-checkpointer run --kubeconfig=/etc/kubernetes/pod-checkpointer.conf

  # see what it would do
  pod-checkpointer run --dry-run`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := configure(cmd, &c, getenv); err != nil {
				return err
			}
			log := slog.New(slog.NewJSONHandler(stderr, nil)).With("node", c.Node)
			klog.SetSlogLogger(log)
			debug.SetGCPercent(garbage)
			runtime.GOMAXPROCS(1) // it does one thing after another, and wakes no second core for it
			d := &daemon{config: c, log: log, stderr: stderr, exit: os.Exit, turn: time.Now()}
			return d.run(cmd.Context())
		},
	}
	bind(cmd.Flags(), &c)
	return cmd
}

// garbage is how much garbage there may be, in percent of what of the heap is in use:
// that is some 3 MB, and searched in a millisecond.
const garbage = 50

// daemon is one copy of the daemon on a node that may have two.
type daemon struct {
	config checkpoint.Config
	log    *slog.Logger
	stderr io.Writer
	exit   func(code int) // ends the process, from whichever goroutine
	health checkpoint.Health
	turn   time.Time // since when nobody else kept this copy from leading
	lacked error     // what it did not find when it had the lock last; nil: nothing
}

// run waits for its turn and leads, again and again, until ctx ends. What it needs
// from the node and does not find, it waits for, and says so, unless another copy
// could lead meanwhile: that is an error.
func (d *daemon) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return d.serve(ctx, "--socket", d.config.Socket, func() (net.Listener, error) { return listenSocket(d.config.Socket) })
	})
	group.Go(func() error {
		for ctx.Err() == nil {
			err := d.lead(ctx)
			if !errors.Is(err, checkpoint.ErrYield) {
				return err
			}
			d.log.Info("makes way", "why", err.Error())
			d.makeWay(ctx)
			d.turn = time.Now()
		}
		return nil
	})
	err := group.Wait()
	d.log.Info("daemon stopped", "why", context.Cause(ctx))
	return err
}

// lead waits until it is this copy's turn, then makes passes until ctx ends or
// another copy is to lead. All that it has opened is closed when it returns.
func (d *daemon) lead(ctx context.Context) error {
	disk, writer, err := d.open(ctx)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil
	case err != nil:
		return err
	}
	held := func() bool { return true }
	if writer != nil { // a dry run has none
		defer writer.Release()
		held = writer.Held
	}
	c := d.config
	label, err := checkpoint.SELinuxLabel(c.Proc)
	if err != nil {
		d.log.Warn("files for containers get no SELinux label", "err", err)
	}
	disk.Label(label)
	host, err := checkpoint.NewHost(c, d.log)
	if err != nil {
		return fmt.Errorf("open the node: %w", err)
	}
	manifests, err := kubelet.OpenManifests(c.StaticPodDir, c.Node)
	if err != nil {
		return err
	}
	if c.DryRun {
		manifests.ReadOnly()
	}
	loop := checkpoint.New(c, checkpoint.Parts{
		Clock: host, Sources: host, Effects: host, Log: d.log,
		Store: disk, Manifests: manifests, Held: held, Credentials: host.Credentials,
	})
	d.health.Leads(loop.Status)
	d.log.Info("leading", "took", time.Since(d.turn).String())
	defer d.watch(ctx, loop)()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return d.serve(ctx, "--listen", c.Listen, func() (net.Listener, error) { return net.Listen("tcp", c.Listen) })
	})
	group.Go(func() error { return host.Run(ctx, loop.Run) })
	return group.Wait()
}

// watch ends the process when the loop hangs: another copy may do better, and gets
// the lock from the kernel. It goes on until stop, so that it sees to the end of
// the last pass too.
func (d *daemon) watch(ctx context.Context, loop *checkpoint.Loop) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := loop.Watch(ctx); err != nil {
			d.log.Error("the watchdog ends the daemon", "err", err)
			stacks := make([]byte, 1<<20)
			_, _ = d.stderr.Write(stacks[:runtime.Stack(stacks, true)])
			d.exit(1)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// openStore opens the store of which this process has the writer's lock.
func openStore(c checkpoint.Config, tries int) (*store.Store, error) {
	// The lock files' directory lies on a tmpfs; whoever comes first makes it,
	// the kubelet for a pod's hostPath or the daemon.
	if err := os.MkdirAll(c.LockDir, 0o755); err != nil {
		return nil, fmt.Errorf("make --lock-dir: %w", err)
	}
	dir, err := durable.Open(c.StateDir)
	if err != nil {
		return nil, fmt.Errorf("open --state-dir: %w", err)
	}
	disk, err := store.Open(dir)
	if errors.Is(err, syscall.EIO) && tries >= patience {
		disk, err = store.OpenGivingUp(dir)
	}
	return disk, err
}

// look opens the store of a daemon that may be running, to read it.
func look(c checkpoint.Config) (*store.Store, error) {
	dir, err := durable.Open(c.StateDir)
	if err != nil {
		return nil, fmt.Errorf("open --state-dir: %w", err)
	}
	return store.Open(dir.ReadOnly())
}
