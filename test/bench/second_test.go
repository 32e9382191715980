//go:build e2e

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
)

// program is the daemon's, on the node.
const program = "/opt/pod-checkpointer/bin/pod-checkpointer"

// second is a daemon beside the lab's own.
type second struct {
	lab       *lab.Lab
	begin     time.Time
	workloads string // the directory of its generations, seen from here
	dir       string
	stop      context.CancelFunc
	ended     chan error
}

// startSecond starts one on the node, with nothing in its state directory, as the
// lab's own on the API server.
func startSecond(ctx context.Context, l *lab.Lab, dir string) (*second, error) {
	if _, err := l.Exec(ctx, "mkdir", "-p", dir+"/manifests"); err != nil {
		return nil, err
	}
	here, err := l.NodePath(dir)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, "run", "--node-name="+nodeName, "--namespaces="+filed,
		"--kubeconfig="+path.Join(stateDir, "kubeconfig"), "--api-endpoint=https://"+nodeIP+":6443",
		"--state-dir="+dir+"/state", "--static-pod-dir="+dir+"/manifests", "--socket="+dir+"/socket", "--listen=127.0.0.1:10298")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	d := &second{lab: l, begin: time.Now(), dir: here, workloads: filepath.Join(here, "state/workloads", filed), stop: stop, ended: make(chan error, 1)}
	go func() { d.ended <- l.Run(cmd) }()
	return d, nil
}

// await waits until that many workloads have that generation.
func (d *second) await(ctx context.Context, workloads, seq int) (time.Time, error) {
	err := awaitEvery(ctx, 2*time.Millisecond, time.Minute, "they are saved", func() bool {
		saved, _ := filepath.Glob(filepath.Join(d.workloads, fmt.Sprintf("*/generations/%d.json", seq)))
		return len(saved) >= workloads
	})
	return time.Now(), err
}

// asked are the requests for what this daemon protects.
func (d *second) asked(begin, end time.Time) ([]lab.Request, error) {
	all, err := d.lab.Audit()
	all = slices.DeleteFunc(all, func(r lab.Request) bool {
		return r.At.Before(begin) || r.At.After(end) || r.Namespace != filed || r.Verb == "watch"
	})
	slices.SortFunc(all, func(a, b lab.Request) int { return a.At.Compare(b.At) })
	if len(all) == 0 && err == nil {
		err = fmt.Errorf("no request in the audit log of %s", d.lab.Log("kube-apiserver"))
	}
	return all, err
}

// written is what lies in its state directory.
type written struct {
	all         map[string]stamp
	generations []string
}

func (d *second) files() (written, error) {
	all, err := stampsBelow(filepath.Join(d.dir, "state"))
	if err != nil {
		return written{}, err
	}
	generations, err := filepath.Glob(filepath.Join(d.workloads, "*/generations/*.json"))
	return written{all, generations}, err
}

// end tells it to end, and waits until it has.
func (d *second) end() error {
	d.stop()
	if err := <-d.ended; !errors.Is(err, context.Canceled) { // it did as it was told
		return err
	}
	return nil
}
