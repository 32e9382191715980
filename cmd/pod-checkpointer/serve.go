package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
)

// serve serves this copy's health until ctx ends. An address that is taken keeps
// nobody from starting a checkpoint: it is tried again, once a beat.
func (d *daemon) serve(ctx context.Context, flag, address string, listen func() (net.Listener, error)) error {
	server := &http.Server{
		ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, Handler: d.health.Handler(),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				checkpoint.Forget() // what answers ran
			}
		},
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = server.Close()
	})
	for said := false; ctx.Err() == nil; {
		listener, err := listen()
		if err == nil {
			err = server.Serve(listener)
		}
		if errors.Is(err, http.ErrServerClosed) {
			break
		}
		if !said {
			d.log.Error("nothing is served on "+flag, "path", address, "err", err)
			said = true
		}
		pause(ctx, d.config.Poll)
	}
	if !stop() {
		<-closed
	}
	return nil
}

// listenSocket listens on a unix socket for this user alone. A file that a daemon
// left there is replaced; one on which a daemon answers is an error.
func listenSocket(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of --socket: %w", err)
	}
	// The socket's file has the mode that the socket has when it is bound
	// (unix_bind_bsd, net/unix/af_unix.c v6.18), so that it is never another one.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmod error
		err := c.Control(func(fd uintptr) { chmod = syscall.Fchmod(int(fd), 0o600) })
		return errors.Join(err, chmod)
	}}
	listener, err := private.Listen(context.Background(), "unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return listener, err
	}
	conn, dialed := net.DialTimeout("unix", path, time.Second)
	if dialed == nil {
		return nil, errors.Join(err, conn.Close())
	}
	info, statErr := os.Lstat(path)
	if statErr != nil || info.Mode().Type() != fs.ModeSocket || !errors.Is(dialed, syscall.ECONNREFUSED) {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, fmt.Errorf("replace what a daemon left: %w", err)
	}
	return private.Listen(context.Background(), "unix", path)
}

// pause waits until d is over or ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
