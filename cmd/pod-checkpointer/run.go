package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
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
			return daemon(cmd.Context(), c, log)
		},
	}
	bind(cmd.Flags(), &c)
	return cmd
}

// daemon serves and makes passes until ctx ends. What it needs from the node
// and does not find, it waits for, and says so.
func daemon(ctx context.Context, c checkpoint.Config, log *slog.Logger) error {
	began := time.Now()
	host, err := checkpoint.NewHost(c, log)
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
	var loop atomic.Pointer[checkpoint.Loop]
	var waits atomic.Value
	waits.Store("the first pass")
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: checkpoint.Handler(
		func() *checkpoint.Status {
			if l := loop.Load(); l != nil {
				return l.Status()
			}
			return nil
		}, func() string { return waits.Load().(string) })}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serve(ctx, server, c, log) })
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	group.Go(func() error {
		return host.Run(ctx, func(ctx context.Context, wake <-chan struct{}) error {
			disk, release, err := open(ctx, c, log, func(why string) { waits.Store(why) })
			if err != nil || disk == nil {
				return err
			}
			defer release()
			l := checkpoint.New(c, checkpoint.Parts{
				Clock: host, Sources: host, Effects: host, Log: log,
				Store: disk, Manifests: manifests,
			})
			loop.Store(l)
			log.Info("daemon started", "took", time.Since(began).String())
			return l.Run(ctx, wake)
		})
	})
	err = group.Wait()
	log.Info("daemon stopped", "why", context.Cause(ctx))
	return err
}

// serve serves until ctx ends. A port that is taken keeps nobody from starting a
// checkpoint: it is tried again, once a beat.
func serve(ctx context.Context, server *http.Server, c checkpoint.Config, log *slog.Logger) error {
	for said := false; ctx.Err() == nil; {
		listener, err := net.Listen("tcp", c.Listen)
		if err == nil {
			if err = server.Serve(listener); errors.Is(err, http.ErrServerClosed) {
				return nil
			}
		}
		if !said {
			log.Error("nothing is served on --listen", "path", c.Listen, "err", err)
			said = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(c.Poll):
		}
	}
	return nil
}

// open opens the store and takes its writer's lock. It tries until it succeeds
// or ctx ends: a disk that is full or read-only, or a state directory that is
// not mounted yet, may come back without our restart.
func open(ctx context.Context, c checkpoint.Config, log *slog.Logger, waits func(string)) (*store.Store, func(), error) {
	said := ""
	for tries := 1; ; tries++ {
		disk, release, err := tryOpen(c, tries)
		if err == nil {
			return disk, release, nil
		}
		waits(err.Error())
		if said != err.Error() {
			said = err.Error()
			log.Error("waiting for what the daemon needs", "path", c.StateDir, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil, nil, nil
		case <-time.After(c.Poll):
		}
	}
}

// patience is how many tries an unreadable disk gets before what it can't give is
// taken for lost.
const patience = 5

func tryOpen(c checkpoint.Config, tries int) (*store.Store, func(), error) {
	if c.DryRun {
		return look(c)
	}
	// The lock files' directory lies on a tmpfs; whoever comes first makes it,
	// the kubelet for a pod's hostPath or the daemon.
	if err := os.MkdirAll(c.LockDir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("make --lock-dir: %w", err)
	}
	dir, err := durable.Create(c.StateDir, 0o700)
	if err != nil {
		return nil, nil, fmt.Errorf("open --state-dir: %w", err)
	}
	release, err := store.LockDir(c.StateDir)
	if err != nil {
		return nil, nil, err
	}
	disk, err := store.Open(dir)
	if errors.Is(err, syscall.EIO) && tries >= patience {
		disk, err = store.OpenGivingUp(dir)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return disk, release, nil
}

// look opens the store of a daemon that may be running, to read it.
func look(c checkpoint.Config) (*store.Store, func(), error) {
	dir, err := durable.Open(c.StateDir)
	if err != nil {
		return nil, nil, fmt.Errorf("open --state-dir: %w", err)
	}
	disk, err := store.Open(dir.ReadOnly())
	return disk, func() {}, err
}
