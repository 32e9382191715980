//go:build e2e

package bench

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pod-checkpointer/pod-checkpointer/lock"
	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
)

// rivalFiles is where the rival finds what the parent finds in its Secret.
const rivalFiles = "/run/bench"

// kill measures what this API server needs after the SIGKILL of a holder. A
// rival on the node itself takes the lock from the parent; the kubelet starts
// the parent again, which waits; when both have settled, the rival is killed.
func (c *cycles) kill(ctx context.Context, l *lab.Lab, w *watch) error {
	parent := w.holder()
	rival, err := startRival(ctx, l)
	if err != nil {
		return err
	}
	defer func() { _ = rival.end() }()
	if err := w.awaited(ctx, false); err != nil {
		return errors.Join(err, rival.end())
	}
	if err := lock.End(ctx, "/proc", parent, 0); err != nil {
		return err
	}
	held, err := w.taken(ctx, parent)
	if err != nil {
		return err
	}
	if _, err := w.answered(ctx, held.at); err != nil {
		return err
	}
	if err := w.awaited(ctx, true); err != nil {
		return err
	}
	if err := pause(ctx, settle); err != nil {
		return err
	}
	begin := time.Now()
	_ = rival.end() // killed: an error, as it should be
	moved, err := w.taken(ctx, held.holder)
	if err != nil {
		return err
	}
	ready, err := w.answered(ctx, moved.at)
	if err != nil {
		return err
	}
	c.killed.add(begin, ready, inOrder(w.closed(begin), []point{{"lock moved", moved.at}}, w.listening(moved.at))...)
	return nil
}

// rival is an API server on the node itself, under the same lock.
type rival struct {
	kill  context.CancelFunc
	ended chan error
}

// startRival starts one with the parent's own command and files.
func startRival(ctx context.Context, l *lab.Lab) (*rival, error) {
	var set appsv1.DaemonSet
	var secret corev1.Secret
	if err := errors.Join(
		l.Call(ctx, http.MethodGet, "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-apiserver", nil, &set),
		l.Call(ctx, http.MethodGet, "/api/v1/namespaces/kube-system/secrets/kube-apiserver", nil, &secret),
	); err != nil {
		return nil, err
	}
	dir, err := l.NodePath(rivalFiles)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for name, data := range secret.Data {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, err
		}
	}
	here := strings.NewReplacer("/etc/kubernetes/secrets", rivalFiles, "$(HOST_IP)", nodeIP)
	var argv []string
	for _, word := range set.Spec.Template.Spec.Containers[0].Command {
		argv = append(argv, here.Replace(word))
	}
	ctx, kill := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	r := &rival{kill: kill, ended: make(chan error, 1)}
	go func() { r.ended <- l.Run(cmd) }()
	return r, nil
}

// end kills the rival and says how it ended. It may be repeated.
func (r *rival) end() error {
	r.kill()
	err := <-r.ended
	r.ended <- err
	return err
}
