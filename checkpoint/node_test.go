package checkpoint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/data"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// A node is an observer over a real store and a real static pod directory, both
// on a disk in memory, and over sources that say what a test has them say.
type node struct {
	*observer
	t       *testing.T
	clock   *handClock
	sources *sayings
	disk    *durable.Disk
	static  *durable.Dir
	key     store.Key
	ids     int
}

const lockPath = "/run/lock/pod-checkpointer/kube-apiserver.lock"

// newNode is a node a minute after boot, whose every source answers, whose
// runtime runs one pod that is none of ours, and whose API server has no parent.
func newNode(t *testing.T) *node {
	disk := durable.NewDisk()
	state, err := disk.Dir("/state")
	require.NoError(t, err)
	opened, err := store.Open(state)
	require.NoError(t, err)
	static, err := disk.Dir("/manifests")
	require.NoError(t, err)
	clock := &handClock{now: time.Minute, boot: boot}
	sources := &sayings{clock: clock, locks: map[string]lock.State{}, ready: map[string]said[bool]{}}
	sources.pods.value = []cri.Pod{{Namespace: "kube-system", Name: "pod-checkpointer-master-1", UID: "daemon", Source: "file", Sandboxes: []cri.Sandbox{{Ready: true}}}}
	sources.kubelet.value = kubelet.View{Regime: kubelet.Synced}
	sources.api.value = &api.View{NodeUID: "node-uid"}
	c := Defaults()
	c.Node, c.StaticPodDir = "master-1", static.Path()
	return &node{
		t: t, clock: clock, sources: sources, disk: disk, static: static,
		key: store.Key{Namespace: "kube-system", Workload: "kube-apiserver"},
		observer: &observer{
			config: c, clock: clock, sources: sources, store: opened,
			manifests: kubelet.NewManifests(static, c.Node), watch: newWatch(), facts: map[factKey]facts{}, content: map[store.Key]contents{},
		},
	}
}

// look is one pass later by a second: what it saw of the API server's workload.
func (n *node) look() (World, details) {
	n.t.Helper()
	n.clock.now += time.Second
	s := n.observe()
	for _, w := range s.worlds {
		if w.Workload == n.key {
			return w, s.details[n.key]
		}
	}
	require.FailNow(n.t, "the workload was not seen")
	return World{}, details{}
}

// lists has the API server list these pods.
func (n *node) lists(pods ...*v1.Pod) {
	view := &api.View{NodeUID: "node-uid"}
	for _, pod := range pods {
		view.Pods = append(view.Pods, *pod)
	}
	n.sources.api.value = view
}

// save commits a generation of pod.
func (n *node) save(pod *v1.Pod) {
	n.t.Helper()
	n.lists(pod)
	_, d := n.look()
	require.NotNil(n.t, d.draft)
	_, err := n.store.Commit(n.key, *d.draft)
	require.NoError(n.t, err)
}

// activate writes the manifest of a generation and returns its activation.
func (n *node) activate(seq int64) string {
	n.t.Helper()
	n.ids++
	id := "0123456789abcdef0123456789abcde" + string(rune('0'+n.ids))
	a := applier{
		config: n.config, clock: n.clock, sources: n.sources, store: n.store, manifests: n.manifests,
		newID: func() string { return id }, note: func(World, string, ...any) {},
	}
	record, _ := n.store.Workload(n.key)
	require.NoError(n.t, a.start(World{Workload: n.key}, seq, record.State))
	return id
}

// runs adds a pod with one container to what the runtime shows.
func (n *node) runs(pod cri.Pod) { n.sources.pods.value = append(n.sources.pods.value, pod) }

// parentPod is a parent as the runtime shows it.
func parentPod(uid string, state cri.State, attempt uint32) cri.Pod {
	return cri.Pod{
		Namespace: "kube-system", Name: "kube-apiserver-" + uid, UID: uid, Source: "api",
		Sandboxes: []cri.Sandbox{{Ready: true, Annotations: map[string]string{
			"kubernetes.io/config.source": "api", "pod-checkpointer.io/checkpoint": "true", "pod-checkpointer.io/lock": "kube-apiserver",
		}}},
		Containers: []cri.Container{{ID: "c-" + uid, Name: "kube-apiserver", Attempt: attempt, State: state}},
	}
}

// checkpointPod is a checkpoint as the runtime shows it.
func checkpointPod(activation string, state cri.State, attempt uint32) cri.Pod {
	return cri.Pod{
		Namespace: "kube-system", Name: "kube-apiserver-checkpoint-master-1", UID: activation, Source: "file",
		Sandboxes: []cri.Sandbox{{Ready: true, Annotations: map[string]string{
			"kubernetes.io/config.source": "file", "pod-checkpointer.io/checkpoint-of": "kube-system/kube-apiserver",
			"pod-checkpointer.io/activation": activation,
		}}},
		Containers: []cri.Container{{ID: "c-" + activation, Name: "kube-apiserver", Attempt: attempt, State: state}},
	}
}

// locks has the kernel's table show a holder and waiters, by pod UID; "" is
// nobody, a name that begins with "pid" is a process outside of any pod.
func (n *node) locks(holder string, waiters ...string) {
	state := lock.State{Path: lockPath, Exists: true}
	if holder != "" {
		p := process(holder)
		state.Holder = &p
	}
	for _, waiter := range waiters {
		state.Waiters = append(state.Waiters, process(waiter))
	}
	n.sources.locks[lockPath] = state
}

func process(of string) lock.Process {
	if len(of) > 3 && of[:3] == "pid" {
		return lock.Process{PID: 4711}
	}
	return lock.Process{PID: 100, PodUID: of, ContainerID: "c-" + of}
}

// parent is an API server from a DaemonSet, as the API server tells it.
func parent(t *testing.T, uid string, change ...func(*v1.Pod)) *v1.Pod {
	var pod v1.Pod
	require.NoError(t, yaml.UnmarshalStrict([]byte(`
apiVersion: v1
kind: Pod
metadata:
  namespace: kube-system
  annotations: {pod-checkpointer.io/checkpoint: "true", pod-checkpointer.io/lock: kube-apiserver}
  ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: kube-apiserver, uid: ds, controller: true}]
spec:
  nodeName: master-1
  hostNetwork: true
  restartPolicy: Always
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  containers:
  - name: kube-apiserver
    image: images.example/kube-apiserver:v1
    command: [/opt/pod-checkpointer/bin/lock-exec, --lock, /run/lock/pod-checkpointer/kube-apiserver.lock, --, kube-apiserver]
    readinessProbe:
      exec: {command: [/opt/pod-checkpointer/bin/lock-exec, check, --ready, --lock, /run/lock/pod-checkpointer/kube-apiserver.lock, --, https, "https://127.0.0.1:6443/readyz"]}
    volumeMounts:
    - {name: bin, mountPath: /opt/pod-checkpointer/bin, readOnly: true}
    - {name: lock, mountPath: /run/lock/pod-checkpointer}
  volumes:
  - {name: bin, hostPath: {path: /opt/pod-checkpointer/bin, type: Directory}}
  - {name: lock, hostPath: {path: /run/lock/pod-checkpointer, type: DirectoryOrCreate}}
status: {phase: Running, hostIP: 10.0.0.1, podIP: 10.0.0.1}
`), &pod))
	pod.UID = types.UID(uid)
	pod.Name = "kube-apiserver-" + uid
	pod.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, c := range change {
		c(&pod)
	}
	return &pod
}

// handClock is set by hand.
type handClock struct {
	now  time.Duration
	boot string
}

func (c *handClock) Now() time.Duration { return c.now }
func (c *handClock) Boot() string       { return c.boot }

// said is what a source says each time that it is asked.
type said[T any] struct {
	value  T
	err    error
	age    time.Duration
	silent bool // it has not answered once
}

func (s said[T]) answer(now time.Duration) Answer[T] {
	if s.silent {
		return Answer[T]{}
	}
	return Answer[T]{Value: s.value, Err: s.err, At: now - s.age}
}

// sayings are Sources that say what they are told to.
type sayings struct {
	clock   *handClock
	pods    said[[]cri.Pod]
	images  said[map[string]Image]
	data    map[string]said[data.Fingerprint]
	kubelet said[kubelet.View]
	api     said[*api.View]
	outside said[[]string]
	ready   map[string]said[bool] // by holder
	locks   map[string]lock.State
	lockErr error
	execErr error
	wants   Wants

	tokens       map[TokenWant]said[api.Token]
	entrypoints  map[string]said[*snapshot.Image]
	certificates map[Trust]said[string]
}

// of is what a source said to one question, if it was asked.
func of[Q comparable, A any](s *sayings, answers map[Q]said[A], question Q) Answer[A] {
	a, ok := answers[question]
	if !ok {
		return Answer[A]{}
	}
	return a.answer(s.clock.now)
}

func (s *sayings) Token(w TokenWant) Answer[api.Token] { return of(s, s.tokens, w) }
func (s *sayings) Entrypoint(image string) Answer[*snapshot.Image] {
	return of(s, s.entrypoints, image)
}
func (s *sayings) Data(dir string) Answer[data.Fingerprint] { return of(s, s.data, dir) }
func (s *sayings) Certificate(t Trust) Answer[string]       { return of(s, s.certificates, t) }

func (s *sayings) Pods() Answer[[]cri.Pod]              { return s.pods.answer(s.clock.now) }
func (s *sayings) Images() Answer[map[string]Image]     { return s.images.answer(s.clock.now) }
func (s *sayings) Kubelet() Answer[kubelet.View]        { return s.kubelet.answer(s.clock.now) }
func (s *sayings) API() Answer[*api.View]               { return s.api.answer(s.clock.now) }
func (s *sayings) Want(w Wants)                         { s.wants = w }
func (s *sayings) Outside() Answer[[]string]            { return s.outside.answer(s.clock.now) }
func (s *sayings) LockExec() error                      { return s.execErr }
func (s *sayings) Lock(path string) (lock.State, error) { return s.locks[path], s.lockErr }
func (s *sayings) Ready(_ store.Key, holder string) Answer[bool] {
	a, ok := s.ready[holder]
	if !ok {
		return Answer[bool]{}
	}
	return a.answer(s.clock.now)
}
