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
	"github.com/pod-checkpointer/pod-checkpointer/lock"
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

// makeWay waits until another copy has the lock: the kernel has woken it, but
// whoever asks for the lock before it has come so far would get it.
func (d *daemon) makeWay(ctx context.Context) {
	d.follow()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		state, err := lock.Inspect(d.config.Proc, store.LockPath(d.config.StateDir))
		if err == nil && state.Holder != nil {
			return
		}
		pause(ctx, 5*time.Millisecond)
	}
}

// follow says that another copy leads.
func (d *daemon) follow() {
	lacked := ""
	if d.lacked != nil {
		lacked = d.lacked.Error()
	}
	d.health.Follows(func() string { return checkpoint.Leader(d.config) }, lacked)
}

// unfit is the error of a copy that had its turn and could not lead, while another one
// may. A leader would make way for it again and again; so it ends, the kubelet
// restarts it ever later, and the rollout that brought it stands.
type unfit struct{ error }

func (e unfit) Unwrap() error { return e.error }

// ends is unfit, or nil while another try may be of use to this copy.
func (d *daemon) ends(tries int) error {
	if d.lacked == nil || errors.Is(d.lacked, syscall.EIO) && tries < patience {
		return nil
	}
	return unfit{fmt.Errorf("this copy of the daemon can't lead, and leaves it to the other one: %w", d.lacked)}
}

// open waits for this copy's turn and opens the store. It tries until it succeeds,
// or ctx ends, or it is unfit, which are errors: a disk that is full or read-only, or
// a state directory that is not mounted yet, may come back without our restart. The
// lock is given back between two tries, since another copy may be able to read what
// this one is not.
func (d *daemon) open(ctx context.Context) (*store.Store, *store.Lock, error) {
	said := ""
	for tries := 1; ; tries++ {
		disk, writer, err := d.tryOpen(ctx, tries)
		if err == nil || ctx.Err() != nil || errors.As(err, new(unfit)) {
			return disk, writer, err
		}
		d.health.Lacks(err.Error())
		if said != err.Error() {
			said = err.Error()
			d.log.Error("waiting for what the daemon needs", "path", d.config.StateDir, "err", err)
		}
		pause(ctx, d.config.Poll)
	}
}

// patience is how many tries an unreadable disk gets before what it can't give is
// taken for lost.
const patience = 5

func (d *daemon) tryOpen(ctx context.Context, tries int) (*store.Store, *store.Lock, error) {
	c := d.config
	if c.DryRun {
		disk, err := look(c)
		return disk, nil, err
	}
	if _, err := durable.Create(c.StateDir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("open --state-dir: %w", err)
	}
	writer, err := d.await(ctx, tries)
	if err != nil {
		return nil, nil, err
	}
	disk, err := openStore(c, tries)
	if d.lacked = err; err == nil {
		return disk, writer, nil
	}
	defer writer.Release()
	if end := d.ends(tries); end != nil && d.contested() {
		return nil, nil, end
	}
	return nil, nil, err
}

// contested tells whether another copy waits for the lock, which this one holds.
func (d *daemon) contested() bool {
	state, err := lock.Inspect(d.config.Proc, store.LockPath(d.config.StateDir))
	return err == nil && len(state.Waiters) > 0
}

// await blocks until this copy has the writer's lock, or ctx ends, or another copy has
// it and this one is unfit. When ctx ends the wait itself goes on, for nothing ends it
// but the end of the process, which is near.
func (d *daemon) await(ctx context.Context, tries int) (*store.Lock, error) {
	writer, err := store.TryLock(d.config.StateDir)
	if !errors.Is(err, store.ErrLocked) {
		return writer, err
	}
	if end := d.ends(tries - 1); end != nil {
		return nil, end
	}
	d.follow()
	d.log.Info("waiting for the lead", "why", checkpoint.Leader(d.config))
	checkpoint.LetGo() // it may wait for months
	got, failed := make(chan *store.Lock), make(chan error, 1)
	go func() {
		writer, err := store.AwaitLock(d.config.StateDir)
		if err != nil {
			failed <- err
			return
		}
		select {
		case got <- writer:
		case <-ctx.Done():
			writer.Release()
		}
	}()
	defer func() { d.turn = time.Now() }()
	select {
	case writer := <-got:
		return writer, nil
	case err := <-failed:
		return nil, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
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
