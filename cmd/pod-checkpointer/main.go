// The command pod-checkpointer keeps a self-hosted control plane startable on
// the node that it runs on.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// usageError is wrong usage: exit status 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// run is the program without its globals. It returns 0, 1 for failure, 2 for
// wrong usage.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   "pod-checkpointer",
		Short: "Keep a self-hosted control plane startable on this node",
		Long: `pod-checkpointer keeps, on this node's disk, a complete copy of each protected
pod, starts the copy as a static pod when the pod itself will not run, and hands
over to the pod when it is back. A lock that the serving process itself holds
makes sure that only one of them ever serves.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs, // or an unknown command would be no usage error
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q", args[0])}
			}
			return cmd.Help()
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(runCommand(getenv, stderr), healthCommand(getenv), installCommand(), uninstallCommand(getenv), versionCommand())
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "%v\nsee pod-checkpointer --help\n", err)
		return 2
	}
	fmt.Fprintln(stderr, err)
	return 1
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this binary", Args: noArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			version := "unknown"
			if info, ok := debug.ReadBuildInfo(); ok {
				version = info.Main.Version
			}
			fmt.Fprintln(cmd.OutOrStdout(), "pod-checkpointer", version)
		},
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, but got %q", cmd.Name(), args)}
	}
	return nil
}
