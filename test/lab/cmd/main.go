// Command lab brings up a real control plane on this machine, cuts its power,
// and takes it away again; see package lab.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

// usageError is one that another command line would not give.
type usageError struct{ error }

// programError is how a program on the node ended, which has said why itself.
type programError struct{ code int }

func (e programError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// run returns 0, 1 for failure, 2 for wrong usage, 3 for a lab that is not up,
// 130 when it was interrupted; for kubectl and exec, what the program returned.
func run(ctx context.Context, args []string) int {
	root := rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var program programError
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &program):
		return program.code
	}
	fmt.Fprintln(os.Stderr, "lab:", err)
	switch {
	case ctx.Err() != nil:
		return 130
	case errors.As(err, &usage), errors.Is(err, lab.ErrOptions):
		return 2
	case errors.Is(err, lab.ErrNotUp):
		return 3
	}
	return 1
}

func rootCommand() *cobra.Command {
	var o lab.Options
	o.Say = func(line string) { fmt.Fprintln(os.Stderr, line) }
	root := &cobra.Command{
		Use:   "lab",
		Short: "a real control plane on this machine, whose power can be cut",
		Long: `A real control plane on this machine: etcd, a self-hosted kube-apiserver, kubelet,
containerd and pod-checkpointer, on a node whose power can be cut.

It needs Linux, root, Go and Debian's apt, and names what is missing. It changes
nothing but its folder below ~/.cache/pod-checkpointer (XDG_CACHE_HOME moves it;
while no lab is up, it may be deleted) and cgroups named podckpt-NAME. The first
up builds Kubernetes and containerd, about 10 minutes on 2 cores; later ones take
15 seconds. Each version is built when it is first asked for.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the lab is not up, 130 interrupted
(up leaves nothing behind then). kubectl and exec return what the program did.`,
		Example: `  go run ./test/lab/cmd up
  go run ./test/lab/cmd kubectl get pods -A
  go run ./test/lab/cmd reboot
  go run ./test/lab/cmd down`,
		SilenceUsage: true, SilenceErrors: true,
		TraverseChildren: true, // or --name before kubectl would be kubectl's
		Args:             cobra.NoArgs,
		RunE:             func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentFlags().StringVar(&o.Name, "name", "lab", "which lab, where there are several")
	root.AddCommand(upCommand(&o), rebootCommand(&o), kubectlCommand(&o), execCommand(&o), statusCommand(&o), downCommand(&o))
	for _, c := range append(root.Commands(), root) {
		check := c.Args
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usageError{err}
			}
			return nil
		}
	}
	return root
}
