package checkpoint

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

const (
	// settle is how long the first pass waits for the first answers.
	settle = 50 * time.Millisecond
	// killed is how long a process may take to be gone after SIGKILL.
	killed = 2 * time.Second
	// serviceAccount is where the kubelet mounts that of a pod
	// (k8s.io/kubernetes@v1.37.2 plugin/pkg/admission/serviceaccount/admission.go).
	serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// Host is the real node: the Sources, Effects and Clock of the daemon.
type Host struct {
	config Config
	boot   string
	log    *slog.Logger
	wake   chan struct{}

	runtime *cri.Client
	sockets *kubelet.Client
	locks   *lock.Inspector
	pods    *poller[[]cri.Pod]
	images  *poller[map[string]Image]
	pins    pins
	data    *poller[map[string]looked]
	outside *poller[[]string]
	kubelet *poller[kubelet.View]
	api     *poller[*api.View]
	keeper  *keeper

	errander *errander

	wants   atomic.Pointer[Wants]
	first   sync.Once
	mu      sync.Mutex
	probes  map[store.Key]*prober
	probing atomic.Int32    // how many of them ask
	ending  map[string]bool // orders under way, by process or container
	awaited map[lock.Process]context.CancelFunc
	busy    time.Duration // when something was in motion last
	group   *errgroup.Group
	ctx     context.Context
}

// noWants are those of before the first pass.
var noWants = &Wants{}

// NewHost opens the node's sources; nothing is asked before Run.
func NewHost(c Config, log *slog.Logger) (*Host, error) {
	boot, err := os.ReadFile(filepath.Join(c.Proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return nil, err
	}
	runtime, err := cri.New(c.CRIEndpoint)
	if err != nil {
		return nil, err
	}
	server, err := api.New(api.Config{
		Kubeconfig: c.Kubeconfig, ServiceAccount: serviceAccount, Endpoint: cmp.Or(c.APIEndpoint, c.Service),
		Fallback: filepath.Join(c.StateDir, "kubeconfig"), Node: c.Node, Namespaces: c.Namespaces,
	})
	if err != nil {
		return nil, err
	}
	sockets, err := kubelet.NewClient(c.KubeletDir, c.Node)
	if err != nil {
		return nil, err
	}
	h := &Host{
		config: c, boot: strings.TrimSpace(string(boot)), log: log, wake: make(chan struct{}, 1),
		runtime: runtime, sockets: sockets, locks: lock.NewInspector(c.Proc), probes: map[store.Key]*prober{}, ending: map[string]bool{},
		awaited: map[lock.Process]context.CancelFunc{},
	}
	h.errander = newErrander(c, h, h.heard, server.Token, runtime)
	h.keeper = newKeeper(c, server.Token, serviceAccount, log)
	h.pins = pins{runtime: runtime, log: log}
	h.data = h.newDataPoller()
	h.wants.Store(noWants)
	h.pods = newPoller(Clock(h), h.heardRuntime, 900*time.Millisecond, calmBeat(c.Poll), inMotion,
		func(ctx context.Context) ([]cri.Pod, error) { return runtime.Pods(ctx, c.Namespaces...) })
	h.images = newPoller(Clock(h), h.heard, 2*time.Second, imagesRest, 30*time.Second, h.askImages)
	h.outside = newPoller(Clock(h), h.heard, 2*time.Second, outsideRest, outsideRest, h.askOutside)
	h.kubelet = newPoller(Clock(h), h.heard, time.Second, 2*time.Second, 250*time.Millisecond, sockets.View)
	seen := &views{watch: server.Await, view: func(ctx context.Context, still *api.Still) (api.View, error) {
		return server.View(ctx, referenced, still)
	}}
	h.api = newPoller(Clock(h), h.heard, 5*time.Second, 5*time.Second, 2*time.Second, seen.ask)
	h.kubelet.await = func(ctx context.Context, v kubelet.View, _ func()) error { return h.awaitKubelet(ctx, sockets, v) }
	h.api.await, seen.amend = seen.await, h.api.amend
	return h, nil
}

// relax lets go of memory when nothing was in motion for a while, and from then on of
// the pages of the program that a pass ran.
func (h *Host) relax(hurry bool) {
	now := h.Now()
	switch {
	case hurry || h.busy == 0:
		h.busy = now
		resting.Store(false)
	case !resting.Load() && now-h.busy >= restful:
		LetGo()
	default:
		Forget()
	}
}

// Run asks the sources until ctx ends, then waits for what is under way.
func (h *Host) Run(ctx context.Context, pass func(ctx context.Context, wake <-chan struct{}) error) error {
	h.group, h.ctx = errgroup.WithContext(ctx)
	h.group.Go(func() error { return h.pods.run(h.ctx) })
	h.group.Go(func() error { return h.images.run(h.ctx) })
	h.group.Go(func() error { return h.data.run(h.ctx) })
	h.group.Go(func() error { return h.outside.run(h.ctx) })
	h.group.Go(func() error { return h.kubelet.run(h.ctx) })
	h.group.Go(func() error { return h.api.run(h.ctx) })
	h.group.Go(func() error { return h.keeper.run(h.ctx) })
	h.group.Go(func() error { return h.errander.run(h.ctx) })
	h.group.Go(func() error { return h.hearRuntime(h.ctx) })
	h.group.Go(func() error { return h.hearDirectory(h.ctx) })
	h.group.Go(func() error { return pass(h.ctx, h.wake) })
	err := h.group.Wait()
	_ = h.runtime.Close()
	_ = h.sockets.Close()
	return err
}

// Now is CLOCK_BOOTTIME (clock_gettime(2)): it goes on while the machine sleeps
// and no one can set it.
func (h *Host) Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // the clock exists since Linux 2.6.39
	}
	return time.Duration(ts.Nano())
}

// Boot is the boot id of the host, as --proc has it.
func (h *Host) Boot() string { return h.boot }

// Pods is what the runtime said last.
func (h *Host) Pods() Answer[[]cri.Pod] { return h.pods.answer() }

// Images tells of the wanted images what is on this node.
func (h *Host) Images() Answer[map[string]Image] { return h.images.answer() }

// Kubelet is what the kubelet's sockets said last.
func (h *Host) Kubelet() Answer[kubelet.View] { return h.kubelet.answer() }

// API is what the API server said last.
func (h *Host) API() Answer[*api.View] { return h.api.answer() }

// Lock reads the kernel's lock table; it does not block.
func (h *Host) Lock(path string) (lock.State, error) { return h.locks.Inspect(path) }

// Ready is what the probe said while that holder held the lock.
func (h *Host) Ready(workload store.Key, holder string) Answer[bool] {
	h.mu.Lock()
	p, ok := h.probes[workload]
	h.mu.Unlock()
	if !ok {
		return Answer[bool]{}
	}
	return p.ready(holder)
}

// Credentials is where those of the static copy stand; nil: there are none.
func (h *Host) Credentials() *Credentials { return h.keeper.credentials() }

// Want tells the sources what the last pass is interested in. The first call
// waits a moment for the first answers.
func (h *Host) Want(w Wants) {
	old := h.wants.Swap(&w)
	if !slices.Equal(w.Images, old.Images) || !slices.Equal(w.CopyImages, old.CopyImages) {
		h.images.poke()
	}
	h.pods.press(w.Hurry)
	h.images.press(w.Hurry)
	if !slices.Equal(w.Data, old.Data) {
		h.data.poke()
	}
	h.data.press(w.Hurry)
	h.kubelet.press(w.Hurry)
	h.api.press(w.Hurry)
	h.keeper.serve(w.Account)
	h.errander.want(w.Errands)
	h.hearProcesses(w.Processes)
	h.mu.Lock()
	for key, p := range h.probes {
		if _, ok := w.Probes[key]; !ok {
			p.stop()
			delete(h.probes, key)
		}
	}
	for key, question := range w.Probes {
		p, ok := h.probes[key]
		if !ok {
			p = h.newProber()
			h.probes[key] = p
		}
		p.put(question, w.Hurry)
	}
	h.mu.Unlock()
	h.first.Do(h.settle)
	h.relax(w.Hurry)
}

func (h *Host) settle() {
	asked := len(h.wants.Load().Images) > 0
	for end := h.Now() + settle; h.Now() < end; time.Sleep(time.Millisecond) {
		images := h.images.answer()
		if h.pods.answer().At != 0 && h.kubelet.answer().At != 0 && h.dataSettled() && (!asked || images.Err != nil || len(images.Value) > 0) {
			return
		}
	}
}

// referenced are the objects that a protected pod needs, and the service accounts
// whose tokens it mounts.
func referenced(pod *v1.Pod) (refs []api.Ref, protected bool) {
	if !snapshot.Wanted(pod) {
		return nil, false
	}
	refs = refsOf(pod)
	for _, token := range snapshot.TokenRefs(pod) {
		refs = append(refs, TokenWant{Namespace: pod.Namespace, TokenRef: token}.account())
	}
	return refs, true
}

// EndProcess ends a process: at once where grace is 0, else in the background.
func (h *Host) EndProcess(ctx context.Context, p lock.Process, grace time.Duration) error {
	if grace == 0 {
		ctx, cancel := context.WithTimeout(ctx, killed)
		defer cancel()
		return lock.End(ctx, h.config.Proc, p, 0)
	}
	h.order("process "+p.ContainerID, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, grace+killed)
		defer cancel()
		return lock.End(ctx, h.config.Proc, p, grace)
	})
	return nil
}

// StopContainer stops a container through the runtime, in the background.
func (h *Host) StopContainer(_ context.Context, id string, grace time.Duration) error {
	h.order("container "+id, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, grace+10*time.Second)
		defer cancel()
		return h.runtime.StopContainer(ctx, id, grace)
	})
	return nil
}

// order carries an order out in the background, unless it is under way.
func (h *Host) order(what string, do func(context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ending[what] {
		return
	}
	h.ending[what] = true
	h.group.Go(func() error {
		err := do(h.ctx)
		h.mu.Lock()
		delete(h.ending, what)
		h.mu.Unlock()
		if err != nil {
			h.log.Error("order failed", "op", "end "+what, "err", err)
		}
		return nil
	})
}
