package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
	"github.com/pod-checkpointer/pod-checkpointer/test/lab/node"
	"github.com/spf13/cobra"
)

func upCommand(o *lab.Options) *cobra.Command {
	c := &cobra.Command{
		Use:   "up",
		Short: "make a new cluster, in place of the one before",
		Example: `  lab up
  lab up --kubernetes v1.34.4 --containerd 1.6.20
  lab up --kubernetes-bin /opt/kubernetes/bin
  lab up --daemon-flag=--handoff-settle=2s --daemon-flag=--poll=500ms
  lab up --name limit --static-control-plane --no-daemon`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			begun := time.Now()
			l, err := lab.Up(c.Context(), *o)
			if err != nil {
				return err
			}
			o.Say(fmt.Sprintf("%6.2fs  up. Look around: lab kubectl get pods -A; take it away: lab down", time.Since(begun).Seconds()))
			return l.Close()
		},
	}
	f := c.Flags()
	f.StringVar(&o.Node, "node", "master", "name of the node")
	f.StringVar(&o.Kubernetes, "kubernetes", "", "version of Kubernetes: "+choice(lab.KubernetesVersions))
	f.StringVar(&o.KubernetesBin, "kubernetes-bin", "", "folder with static etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kubectl, instead of building them")
	f.StringVar(&o.Containerd, "containerd", "", "version of containerd: "+choice(lab.ContainerdVersions))
	f.StringVar(&o.LockExec, "lock-exec", "", "ready lock-exec, instead of building it")
	f.StringVar(&o.PodCheckpointer, "pod-checkpointer", "", "ready pod-checkpointer, instead of building it")
	f.BoolVar(&o.StaticControlPlane, "static-control-plane", false, "run the control plane as plain static pods")
	f.BoolVar(&o.NoDaemon, "no-daemon", false, "leave pod-checkpointer out")
	f.StringArrayVar(&o.DaemonFlags, "daemon-flag", nil, "flag to add to pod-checkpointer's command")
	f.DurationVar(&o.Grace, "grace", 0, "the API server's grace at its end, instead of its manifest's")
	return c
}

// choice is for a flag whose default is the first of several.
func choice(versions []string) string {
	return strings.Join(versions, " or ") + ` (default "` + versions[0] + `")`
}

// comeback is how long reboot waits for the API server, on the slowest machine.
const comeback = 5 * time.Minute

func rebootCommand(o *lab.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "reboot",
		Short:   "cut the node's power and boot it; wait for the API server",
		Example: "  lab reboot",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := lab.OpenToChange(*o)
			if err != nil {
				return err
			}
			defer l.Close()
			if err := l.Reboot(c.Context()); err != nil {
				return err
			}
			begun := time.Now()
			ctx, cancel := context.WithTimeoutCause(c.Context(), comeback, fmt.Errorf("no answer for %s", comeback))
			defer cancel()
			if err := l.AwaitReady(ctx); err != nil {
				return fmt.Errorf("wait for the API server: %w", err)
			}
			o.Say(fmt.Sprintf("%6.2fs  until the API server answered", time.Since(begun).Seconds()))
			return nil
		},
	}
}

func kubectlCommand(o *lab.Options) *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl ARGS...",
		Short:              "run kubectl on the node, as the administrator",
		Example:            "  lab kubectl get pods -A -o wide\n  lab kubectl -n kube-system logs ds/kube-apiserver",
		DisableFlagParsing: true, // they are kubectl's
		Args:               cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			return inside(c, o, lab.KubectlCommand(args...))
		},
	}
}

func execCommand(o *lab.Options) *cobra.Command {
	c := &cobra.Command{
		Use:     "exec PROGRAM ARGS...",
		Short:   "run a program on the node",
		Example: "  lab exec sh\n  lab exec ctr -n k8s.io containers list",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return inside(c, o, args) },
	}
	c.Flags().SetInterspersed(false)
	return c
}

// inside runs argv on the node with this process's input and outputs.
func inside(c *cobra.Command, o *lab.Options, argv []string) error {
	l, err := lab.Open(*o)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(c.Context(), "/usr/bin/env", argv...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = l.Run(cmd)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return programError{exit.ExitCode()}
	}
	return err
}

func statusCommand(o *lab.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "show what runs; exit 0 if the API server is ready",
		Example: "  lab status",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := lab.Open(*o)
			if err != nil {
				return err
			}
			units, err := l.Components()
			if errors.Is(err, lab.ErrNoPower) {
				fmt.Println("the node has no power")
			}
			if err != nil {
				return err
			}
			if err := table(l, units); err != nil {
				return err
			}
			if err := l.Ready(c.Context()); err != nil {
				return fmt.Errorf("API server is not ready: %w", err)
			}
			fmt.Println("API server is ready")
			return nil
		},
	}
}

func table(l *lab.Lab, units []node.Status) error {
	text := "COMPONENT\tPID\tAGE\tSTARTS\tLAST EXIT\tLOG\n"
	for _, u := range units {
		age := "-"
		if u.PID != 0 {
			age = time.Since(u.Started).Round(time.Second).String()
		}
		text += fmt.Sprintf("%s\t%d\t%s\t%d\t%s\t%s\n", u.Name, u.PID, age, u.Starts, u.Exit, l.Log(lab.Component(u.Name)))
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, err := io.WriteString(out, text)
	return errors.Join(err, out.Flush())
}

func downCommand(o *lab.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "down",
		Short:   "take the lab away; only logs and the cache stay",
		Example: "  lab down\n  lab down --name limit",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return lab.Down(c.Context(), *o)
		},
	}
}
