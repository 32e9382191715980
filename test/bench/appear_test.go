//go:build e2e

package bench

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
)

// starting watches for the names that a start of the API server's checkpoint
// brings: the kernel tells of them, and nobody polls.
type starting struct {
	*fsnotify.Watcher
	names map[string]string // pattern of the path: what it is
	last  string
}

func watchStart(l *lab.Lab) (*starting, error) {
	state, err := l.NodePath(stateDir)
	if err != nil {
		return nil, err
	}
	manifests, err := l.NodePath(staticPods)
	if err != nil {
		return nil, err
	}
	s := &starting{last: filepath.Join(manifests, filepath.Base(kubelet.File("kube-system", "kube-apiserver")))}
	s.names = map[string]string{
		filepath.Join(state, "workloads", apiServer, "state.json"): "decision stored",
		filepath.Join(state, "activations", "*"):                   "volumes staged",
		s.last:                                                     "manifest renamed",
	}
	if s.Watcher, err = fsnotify.NewWatcher(); err != nil {
		return nil, err
	}
	for pattern := range s.names {
		if err := s.Add(filepath.Dir(pattern)); err != nil && !errors.Is(err, fs.ErrNotExist) { // the first start makes some
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// manifest waits until the manifest has its name, and tells what came before.
func (s *starting) manifest(ctx context.Context) (points []point, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("no manifest within 10 s"))
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case err := <-s.Errors:
			return nil, err
		case event := <-s.Events:
			now := time.Now()
			if !event.Has(fsnotify.Create) || strings.HasPrefix(filepath.Base(event.Name), ".") { // also what a rename leads to, inotify(7)
				continue
			}
			for pattern, what := range s.names {
				if ok, _ := filepath.Match(pattern, event.Name); ok {
					points = append(points, point{what, now})
				}
			}
			if event.Name == s.last {
				return points, nil
			}
		}
	}
}
