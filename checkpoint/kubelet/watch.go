package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// Watch calls wake when a manifest in the static pod directory at path comes, goes
// or changes, until ctx ends or the directory itself is gone or replaced, and then
// returns why. It is a hint: events may be lost, and what a link leads to is not
// watched. wake must not block.
func Watch(ctx context.Context, path string, wake func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", path, err)
	}
	defer w.Close()
	if err := w.Add(path); err != nil {
		return fmt.Errorf("watch %s: %w", path, err)
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-w.Events:
			if e.Name == path && e.Has(fsnotify.Remove|fsnotify.Rename) {
				wake()
				return fmt.Errorf("watch %s: the directory is gone", path)
			}
			if !strings.HasPrefix(filepath.Base(e.Name), ".") { // as the kubelet does
				wake()
			}
		case err := <-w.Errors:
			wake()
			return fmt.Errorf("watch %s: %w", path, err)
		}
	}
}
