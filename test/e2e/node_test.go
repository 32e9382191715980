//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
)

// nodeRoot is the /proc folder of the node's process 1, outside of the node. To
// find it takes some milliseconds, which is too long to do so at each beat.
type nodeRoot struct {
	lab *lab.Lab

	mu        sync.Mutex
	dir       string // "": no power when it was last looked for
	namespace string // of its process ids, or a reused number would be taken for it
	looked    time.Time
}

// path is that folder, "" while the node has no power.
func (n *nodeRoot) path() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dir != "" {
		if now, err := os.Readlink(n.dir + "/ns/pid"); err == nil && now == n.namespace {
			return n.dir
		}
		n.dir = ""
	}
	if time.Since(n.looked) < 2*beat {
		return ""
	}
	defer func() { n.looked = time.Now() }()
	run, err := n.lab.NodePath("/run")
	if err != nil {
		return ""
	}
	dir := strings.TrimSuffix(run, "/root/run")
	if n.namespace, err = os.Readlink(filepath.Join(dir, "ns/pid")); err == nil {
		n.dir = dir
	}
	return n.dir
}
