package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
)

func healthCommand(getenv func(string) string) *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask the daemon beside this command how it is",
		Long: `Ask the daemon on --socket how it is, leading or waiting for its turn. This is the
exec probe of the daemon's pod: it asks that pod's own daemon, and no other.

It prints what an operator should read, line by line; the first line is "ok", or
"waiting:" and for what. Exit status: 0 healthy, 1 not, or nobody answers, 2 wrong
usage.`,
		Example: `  # in the daemon's container
  pod-checkpointer health

  # whether it protects anything yet
  pod-checkpointer health --ready`,
		Args: noArgs,
	}
	ready := cmd.Flags().Bool("ready", false, "ask whether it is ready: it has made a pass, or waits for its turn")
	cmd.Flags().StringVar(&socket, "socket", checkpoint.Defaults().Socket, "unix socket of the daemon")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !cmd.Flags().Changed("socket") {
			socket = cmp.Or(getenv(variable("socket")), socket)
		}
		path := "/healthz"
		if *ready {
			path = "/readyz"
		}
		said, err := askHealth(cmd.Context(), socket, path)
		fmt.Fprint(cmd.OutOrStdout(), said)
		return err
	}
	return cmd
}

// healthTimeout is the time that an answer may take; the kubelet may give a probe
// less.
const healthTimeout = 5 * time.Second

// askHealth returns what the daemon says; what it says of a fault is the error.
func askHealth(ctx context.Context, socket, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://daemon"+path, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(request)
	if failed := new(url.Error); errors.As(err, &failed) {
		err = failed.Err // the URL names nothing
	}
	if err != nil {
		return "", fmt.Errorf("ask the daemon: %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", fmt.Errorf("ask the daemon: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the daemon says: %s", strings.TrimSpace(string(body)))
	}
	return string(body), nil
}
