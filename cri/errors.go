package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrNoRuntimeV1 is the answer of an endpoint that will not do until somebody
// changes the node: waiting does not help.
var ErrNoRuntimeV1 = errors.New("the endpoint does not serve CRI runtime.v1: " +
	"it needs containerd 1.6 or later, or another runtime of a kubelet 1.26 or later; " +
	"in containerd's config.toml disabled_plugins must not name \"cri\"")

// explain says in an operator's words what a call came to. nil stays nil;
// errors.Is finds ErrNoRuntimeV1, the errors of contexts and fs.ErrNotExist.
func (c *Client) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s at %s: %w", what, c.endpoint, c.cause(err))
}

func (c *Client) cause(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("an earlier question is still without answer: %w", err)
	}
	switch status.Code(err) {
	case codes.Unimplemented:
		return ErrNoRuntimeV1
	case codes.DeadlineExceeded:
		return fmt.Errorf("no answer: %w", context.DeadlineExceeded)
	case codes.Canceled:
		return context.Canceled
	case codes.Unavailable:
		if _, stat := os.Stat(c.socket); errors.Is(stat, fs.ErrNotExist) {
			return fmt.Errorf("no socket: the runtime is not up, or it listens elsewhere: %w", fs.ErrNotExist)
		}
	}
	return err
}

// absent tells whether the runtime says that what is to be stopped is not there.
func absent(err error) bool { return status.Code(err) == codes.NotFound }
