//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
	"sigs.k8s.io/yaml"
)

const (
	manifestDir   = "/etc/kubernetes/manifests"
	ofKey         = "pod-checkpointer.io/checkpoint-of"
	activation    = "pod-checkpointer.io/activation"
	generationKey = "pod-checkpointer.io/generation"
	workload      = "kube-system/kube-apiserver" // what most scenarios are about
	lockDir       = "/run/lock/pod-checkpointer"

	// Lines of the timeline that scenarios look for.
	manifestWritten = "manifest written"
	toldToGo        = "checkpoint told to go: manifest removed"
	tookLock        = " holds the lock"

	// Who serves, waits or runs.
	asParent     = "parent"
	asCheckpoint = "checkpoint"
	asHost       = "host" // a process in no pod
)

// sight is what was seen last, each part by its own means.
type sight struct {
	serves   party   // by the lock table; the zero party: nobody
	waiters  []party // in the kernel's order
	manifest string  // activation that has a manifest; "": none
	answers  bool    // /readyz says ok
	pods     []cri.Pod
	status   *checkpoint.Status // nil: the daemon does not answer
}

// party is a process that holds the lock or waits for it.
type party struct {
	role      string // parent, checkpoint or host; "": nobody
	container string
	uid       string // of the pod
	pid       int    // outside of the node
}

// eyes look at the node, each thing on a goroutine of its own, and put each
// change on the timeline.
type eyes struct {
	lab      *lab.Lab
	node     *nodeRoot
	timeline timeline
	stop     context.CancelFunc
	looks    sync.WaitGroup
	calm     atomic.Bool // runtime and daemon have so much to tell that twice a second is enough

	mu      sync.Mutex
	now     sight
	outages []outage
}

// outage is a time in which the API did not answer, from the last answer to the
// next.
type outage struct{ from, to time.Time }

func (o outage) String() string { return fmt.Sprintf("%.2f s", o.to.Sub(o.from).Seconds()) }

// awaySince are the outages that are over and began after that.
func (e *eyes) awaySince(since time.Time) []outage {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []outage
	for _, o := range e.outages {
		if o.from.After(since) {
			out = append(out, o)
		}
	}
	return out
}

func total(outages []outage) time.Duration {
	var sum time.Duration
	for _, o := range outages {
		sum += o.to.Sub(o.from)
	}
	return sum
}

func open(l *lab.Lab) *eyes {
	ctx, stop := context.WithCancel(context.Background())
	e := &eyes{lab: l, node: &nodeRoot{lab: l}, stop: stop}
	e.timeline.live = *keep
	e.look(ctx, beat, e.locks)
	e.look(ctx, beat, e.manifests)
	e.look(ctx, 2*beat, e.readiness())
	e.look(ctx, 5*beat, e.calmly(e.runtime()))
	e.look(ctx, 10*beat, e.calmly(e.daemon()))
	return e
}

func (e *eyes) close() {
	e.stop()
	e.looks.Wait()
}

// calmly is a look that may be skipped while calm.
func (e *eyes) calmly(once func(context.Context)) func(context.Context) {
	var last time.Time
	return func(ctx context.Context) {
		if e.calm.Load() && time.Since(last) < 50*beat {
			return
		}
		once(ctx)
		last = time.Now()
	}
}

func (e *eyes) look(ctx context.Context, every time.Duration, once func(context.Context)) {
	e.looks.Go(func() {
		for tick := time.NewTicker(every); ctx.Err() == nil; {
			once(ctx)
			select {
			case <-ctx.Done():
				tick.Stop()
			case <-tick.C:
			}
		}
	})
}

// sight is what is seen now.
func (e *eyes) sight() sight {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}

// change replaces a part of the sight and returns the one before.
func (e *eyes) change(set func(*sight)) (before sight) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before = e.now
	set(&e.now)
	return before
}

// locks asks the kernel's lock table.
func (e *eyes) locks(context.Context) {
	var state lock.State
	if root := e.node.path(); root != "" {
		var err error
		if state, err = lock.Inspect("/proc", filepath.Join(root, "root", lockPath)); err != nil {
			return // somebody ended while it looked
		}
	}
	serves, waiters := partiesOf(state)
	at := time.Now()
	before := e.change(func(s *sight) { s.serves, s.waiters = serves, waiters })
	if serves != before.serves && serves.role != "" {
		e.timeline.add(at, "%s"+tookLock, serves.role)
	}
	if len(waiters) > 0 && (len(before.waiters) == 0 || waiters[0] != before.waiters[0]) {
		e.timeline.add(at, "%s is first in line", waiters[0].role)
	}
}

// partiesOf are who holds a lock, and who waits for it.
func partiesOf(state lock.State) (holder party, waiters []party) {
	if state.Holder != nil {
		holder = partyOf(*state.Holder)
	}
	for _, p := range state.Waiters {
		waiters = append(waiters, partyOf(p))
	}
	return holder, waiters
}

// partyOf tells a parent from a checkpoint by its UID: the API server's have
// dashes, those of static pods have none (k8s.io/kubernetes@v1.37.2
// pkg/kubelet/config/common.go, applyDefaults).
func partyOf(p lock.Process) party {
	role := asHost
	switch {
	case strings.Contains(p.PodUID, "-"):
		role = asParent
	case p.PodUID != "":
		role = asCheckpoint
	}
	return party{role: role, container: p.ContainerID, uid: p.PodUID, pid: p.PID}
}

// manifests reads the static pod directory, which is on the node's disk.
func (e *eyes) manifests(context.Context) {
	dir, err := e.lab.NodePath(manifestDir)
	if err != nil {
		return
	}
	files, err := filepath.Glob(filepath.Join(dir, "[^.]*"))
	if err != nil {
		return
	}
	active := ""
	for _, file := range files {
		if of, id := activationIn(file); of == workload {
			active = id
		}
	}
	at := time.Now()
	switch before := e.change(func(s *sight) { s.manifest = active }); {
	case before.manifest == active:
	case active == "":
		e.timeline.add(at, toldToGo)
	default:
		e.timeline.add(at, manifestWritten)
	}
}

// activationIn is of which workload a file is the checkpoint, and which
// activation of it; empty if it is none.
func activationIn(file string) (of, id string) {
	data, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(data), ofKey) {
		return "", ""
	}
	var head struct {
		Metadata struct{ Annotations map[string]string }
	}
	if yaml.Unmarshal(data, &head) != nil {
		return "", ""
	}
	return head.Metadata.Annotations[ofKey], head.Metadata.Annotations[activation]
}

// readiness asks the API server on a new connection each time. It counts as away
// when it has not answered for half a second, or where it says nothing at all, as
// one that is busy does, for three.
func (e *eyes) readiness() func(context.Context) {
	client, err := newClient(e.lab)
	var lastOK time.Time
	return func(ctx context.Context) {
		failed := err
		if failed == nil {
			failed = ask(ctx, client, lab.APIURL+"/readyz", nil)
		}
		if failed == nil {
			now := time.Now()
			if before := e.change(func(s *sight) { s.answers = true }); !before.answers {
				away := ""
				if !lastOK.IsZero() {
					e.mu.Lock()
					e.outages = append(e.outages, outage{lastOK, now})
					e.mu.Unlock()
					away = fmt.Sprintf(", after %.2f s away", now.Sub(lastOK).Seconds())
				}
				e.timeline.add(now, "%s ready: the API answers%s", before.serves.role, away)
			}
			lastOK = now
			return
		}
		patience := 500 * time.Millisecond
		if errors.Is(failed, context.DeadlineExceeded) {
			patience = 3 * time.Second
		}
		if time.Since(lastOK) < patience {
			return
		}
		if before := e.change(func(s *sight) { s.answers = false }); before.answers {
			e.timeline.add(lastOK, "API's last answer")
		}
	}
}

// runtime asks containerd.
func (e *eyes) runtime() func(context.Context) {
	var client *cri.Client
	of := ""
	return func(ctx context.Context) {
		root := e.node.path()
		if root != of && client != nil {
			_ = client.Close()
			client = nil
		}
		of = root
		if root == "" {
			e.change(func(s *sight) { s.pods = nil })
			return
		}
		if client == nil {
			var err error
			if client, err = cri.New("unix://" + filepath.Join(root, "root/run/containerd/containerd.sock")); err != nil {
				return
			}
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		pods, err := client.Pods(ctx)
		if err != nil {
			return // not up yet, or stopped by a scenario
		}
		at := time.Now()
		before := e.change(func(s *sight) { s.pods = pods })
		was := running(before.pods)
		for id, name := range running(pods) {
			if was[id] == "" {
				e.timeline.add(at, "%s's container runs", name)
			}
		}
	}
}

// running are the containers of the daemon and the API servers, by id.
func running(pods []cri.Pod) map[string]string {
	out := map[string]string{}
	for _, pod := range pods {
		name := ""
		switch {
		case pod.Annotation(ofKey) == workload:
			name = asCheckpoint
		case pod.Source == "api" && strings.HasPrefix(pod.Name, "kube-apiserver"):
			name = asParent
		case strings.HasPrefix(pod.Name, "pod-checkpointer"):
			name = "daemon"
		}
		for _, c := range pod.Containers {
			if name != "" && c.State == cri.Running {
				out[c.ID] = name
			}
		}
	}
	return out
}

// daemon reads its /status.
func (e *eyes) daemon() func(context.Context) {
	client := &http.Client{Transport: &http.Transport{DialContext: e.lab.Dial, DisableKeepAlives: true}}
	var last time.Time
	return func(ctx context.Context) {
		status, limit := &checkpoint.Status{}, 300*time.Millisecond
		if e.calm.Load() {
			limit = 2 * time.Second
		}
		if askFor(ctx, limit, client, "http://127.0.0.1:10299/status", status) != nil {
			e.change(func(s *sight) { s.status = nil })
			return
		}
		e.change(func(s *sight) { s.status = status })
		for _, event := range status.Events {
			if event.At.After(last) {
				last = event.At
				switch {
				case strings.HasPrefix(event.Workload, "kube-system/corpus-"): // too many
				case event.Workload != workload:
					e.timeline.add(event.At, "  daemon: %s: %s", strings.TrimPrefix(event.Workload, "kube-system/"), event.What)
				case !seenElsewhere(event.What):
					e.timeline.add(event.At, "  daemon: %s", event.What)
				}
			}
		}
	}
}

// seenElsewhere tells of the daemon's events that are on the timeline by our own eyes.
func seenElsewhere(what string) bool {
	return strings.HasPrefix(what, "held by") || strings.HasSuffix(what, "first in line") ||
		what == "manifest written" || what == "checkpoint told to go"
}
