package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

const (
	step      = 100 * time.Millisecond
	staticDir = "/etc/kubernetes/manifests"
	stateDir  = "/var/lib/pod-checkpointer"
)

// node is one machine with all that runs on it. Its time is that of a clock on
// the wall: it goes on while the machine is off.
type node struct {
	rng    *rand.Rand
	trace  *trace
	now    time.Duration
	booted time.Duration
	boot   string
	boots  int

	disk    *durable.Disk
	runtime runtime
	locks   map[string]*flock // by path; gone with a power cut, as /run is
	kube    kubeletModel
	cluster cluster
	daemon  daemon
	rules   rules

	ids, pids int
	writes    int             // calls that change the disk, so far
	files     []file          // of the static pod directory; nil: not read since it has changed
	parsed    map[string]*pod // of manifests, by their bytes

	// What differs between nodes.
	forgetful bool          // the daemon loses its memory after each pass
	podsAPI   bool          // the kubelet says whether it is synced
	election  time.Duration // of a leader among the controller managers
	calm      bool          // nobody dies between two looks at the lock table
	settles   time.Duration // that a checkpoint serves longer than usual before it hands over

	faults
}

// daemon is the process under test.
type daemon struct {
	upAt      time.Duration
	next      time.Duration // pass
	loop      *checkpoint.Loop
	store     *store.Store
	manifests *kubelet.Manifests
	sources   *sources
}

func newNode(seed int64, forgetful bool, out io.Writer) *node {
	n := &node{
		rng: rand.New(rand.NewPCG(uint64(seed), 0)), forgetful: forgetful,
		disk: durable.NewDisk(), locks: map[string]*flock{}, parsed: map[string]*pod{}, rules: newRules(),
	}
	n.trace = &trace{now: func() time.Duration { return n.now }, out: out}
	n.podsAPI = n.rng.IntN(3) > 0
	n.election = n.between(0, 15*time.Second)
	n.cluster.sets = []*daemonSet{
		{name: server, program: good, grace: []string{"", "", "5"}[n.rng.IntN(3)]},
		{name: controller, program: good, probed: n.rng.IntN(2) == 0, port: n.rng.IntN(4) == 0, after: n.rng.IntN(2) == 0},
		{name: scheduler, program: good, after: true},
	}
	n.powerOn(0)
	// An installer has brought the first parents up, with an API server of its own.
	n.kube.upAt, n.kube.synced = 0, true
	for _, set := range n.cluster.sets {
		n.cluster.create(set, 0)
		object := n.cluster.pods[len(n.cluster.pods)-1]
		n.kube.pods = append(n.kube.pods, &supervised{pod: newPod(object, "api"), due: step})
	}
	n.writeForeign()
	return n
}

// between is a random duration, in whole milliseconds.
func (n *node) between(least, most time.Duration) time.Duration {
	return least + time.Duration(n.rng.Int64N(int64((most-least)/time.Millisecond)+1))*time.Millisecond
}

// boottime is CLOCK_BOOTTIME.
func (n *node) boottime() time.Duration { return n.now - n.booted + time.Second }

// step lets everything on the node go on for a moment.
func (n *node) step() {
	n.now += step
	if n.now < n.booted {
		return
	}
	n.kubelet()
	n.run()
	n.control()
	n.work()
	n.always()
}

// powerOn boots the machine after it was off for that long.
func (n *node) powerOn(off time.Duration) {
	n.boots++
	n.booted = n.now + off
	n.boot = fmt.Sprintf("boot-%d", n.boots)
	n.locks = map[string]*flock{}
	n.runtimeSilent = n.booted + n.between(0, 4*time.Second)
	n.restartKubelet(off + n.between(time.Second, 6*time.Second))
	n.daemon = daemon{upAt: n.kube.upAt + n.between(0, 5*time.Second)}
	n.files = nil
	n.disk.Fail(n.diskDoes)
}

// powerCut ends everything at once. What was synced is there when it boots.
func (n *node) powerCut(off time.Duration) {
	n.trace.say("POWER CUT, off for %s", off)
	n.disk.Crash(func() bool { return n.rng.IntN(2) == 0 })
	for _, s := range n.runtime.sandboxes {
		s.ready = false
		for _, c := range s.containers {
			if c.live() {
				c.process, c.state, c.ended = nil, exited, n.now+off
			}
		}
	}
	n.powerOn(off)
}

// killDaemon ends the daemon; somebody starts it again.
func (n *node) killDaemon() {
	n.trace.say("daemon killed")
	n.daemon = daemon{upAt: n.now + n.between(200*time.Millisecond, 10*time.Second)}
}

// interrupt is what happens in the middle of a pass, at a call to the disk.
type interrupt func(*node)

// work lets the daemon make a pass if it is time.
func (n *node) work() {
	d := &n.daemon
	if n.now < d.upAt {
		return
	}
	if d.loop == nil {
		if err := n.startDaemon(); err != nil {
			n.trace.say("daemon: can't start: %v", err)
			if n.now >= n.diskFails {
				n.broken("the daemon can't start on a disk without fault: %v", err)
			}
			*d = daemon{upAt: n.now + n.between(time.Second, 5*time.Second)}
			return
		}
	}
	d.sources.step()
	if n.now < d.next {
		return
	}
	if n.forgetful {
		d.loop = n.newLoop(d, false)
	}
	n.before()
	motion, cut := n.pass(d)
	if cut != nil {
		cut(n)
		return
	}
	n.after()
	d.next = n.now + n.pace(motion)
}

// pace is how long it takes to the next pass. A busy node lets the daemon wait;
// where nothing has happened for a while that also spares the one that simulates.
func (n *node) pace(motion bool) time.Duration {
	switch {
	case n.now-n.trace.last > 10*time.Second:
		return n.between(time.Second, 2*time.Second)
	case !motion:
		return time.Second
	case n.now-n.trace.last < 2*time.Second:
		return step
	}
	return 5 * step
}

func (n *node) pass(d *daemon) (motion bool, cut interrupt) {
	defer func() {
		if r := recover(); r != nil {
			var ok bool
			if cut, ok = r.(interrupt); !ok {
				panic(r)
			}
		}
	}()
	return d.loop.Pass(context.Background()), nil
}

func (n *node) startDaemon() (err error) {
	d := &n.daemon
	state, err := n.disk.Dir(stateDir)
	if err != nil {
		return err
	}
	static, err := n.disk.Dir(staticDir)
	if err != nil {
		return err
	}
	n.cutAfter = 0 // an interrupt is for a pass
	if d.store, err = store.Open(state); err != nil {
		return err
	}
	d.manifests = kubelet.NewManifests(static, nodeName)
	d.sources = &sources{n: n, probes: map[store.Key]*asked[probed]{}}
	d.loop = n.newLoop(d, false)
	n.trace.say("daemon started")
	n.opened(d.store)
	return nil
}

// newLoop is a loop that remembers nothing. A dry one only says what it would do.
func (n *node) newLoop(d *daemon, dry bool) *checkpoint.Loop {
	config := config()
	config.DryRun = dry
	config.HandoffSettle += n.settles
	parts := checkpoint.Parts{
		Clock: d.sources, Sources: d.sources, Effects: d.sources, Store: d.store, Manifests: d.manifests,
		NewID: func() string { return fmt.Sprintf("%016x%016x", n.rng.Uint64(), n.rng.Uint64()) },
		Log:   slog.New(n.trace),
	}
	if dry {
		parts.Sources = deaf{d.sources}
		parts.Log = slog.New(&n.rules.opinion)
	}
	return checkpoint.New(config, parts)
}

func config() checkpoint.Config {
	c := checkpoint.Defaults()
	c.Node, c.StaticPodDir, c.StateDir, c.LockDir = nodeName, staticDir, stateDir, lockDir
	return c
}

// diskDoes decides what each call of the daemon to the disk comes to. What was
// stored can be read: to the store a sector that can't is bad for good.
func (n *node) diskDoes(op, name string) error {
	switch op {
	case "rename", "remove", "write", "create", "symlink":
		n.files = nil
		n.writes++
	}
	if n.looking {
		return nil
	}
	if n.cutAfter > 0 {
		if n.cutAfter--; n.cutAfter == 0 {
			panic(n.cut)
		}
	}
	if n.now >= n.diskFails || n.rng.IntN(4) > 0 {
		return nil
	}
	switch op {
	case "create", "write", "mkdir", "symlink":
		return n.diskError
	case "open", "stat", "read", "readdir":
		if !errors.Is(n.diskError, syscall.EIO) || strings.HasPrefix(name, stateDir) {
			return nil
		}
	}
	if errors.Is(n.diskError, syscall.ENOSPC) {
		return nil
	}
	return n.diskError
}

// look lets the model use the disk without its faults.
func (n *node) look(dir string, use func(d *durable.Dir) error) error {
	n.looking = true
	defer func() { n.looking = false }()
	d, err := n.disk.Dir(dir)
	if err != nil {
		return err
	}
	return use(d)
}

type file struct{ name, data string }

// readDir is the static pod directory as it is now; it is read again after a change.
func (n *node) readDir() []file {
	if n.files != nil {
		return n.files
	}
	var files []file
	err := n.look(staticDir, func(d *durable.Dir) error {
		entries, err := d.ReadDir(".")
		for _, e := range entries {
			data, _ := d.ReadFile(e.Name())
			files = append(files, file{e.Name(), string(data)})
		}
		return err
	})
	if err != nil {
		n.broken("read the static pod directory: %v", err)
	}
	n.files = files
	return files
}
