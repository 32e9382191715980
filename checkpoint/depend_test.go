package checkpoint

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// client is a parent of another workload, with a lock of its own.
func client(t *testing.T, workload, after string) *v1.Pod {
	return parent(t, workload, func(p *v1.Pod) {
		p.Name, p.OwnerReferences[0].Name = workload+"-x7k2p", workload
		p.Annotations["pod-checkpointer.io/lock"] = workload
		if after != "" {
			p.Annotations["pod-checkpointer.io/after"] = after
		}
		c := &p.Spec.Containers[0]
		for _, words := range [][]string{c.Command, c.ReadinessProbe.Exec.Command} {
			for i := range words {
				words[i] = strings.ReplaceAll(words[i], "kube-apiserver.lock", workload+".lock")
			}
		}
		c.Command[4] = workload
	})
}

// saves commits a generation of each pod.
func (n *node) saves(pods ...*v1.Pod) {
	n.t.Helper()
	n.lists(pods...)
	for key, p := range n.snapshots(Known(n.sources.api.value), Known(n.sources.pods.value)).value.workloads {
		require.Empty(n.t, p.refused)
		for _, draft := range p.drafts {
			_, err := n.store.Commit(key, draft)
			require.NoError(n.t, err)
		}
	}
}

func (n *node) lookAt(workload string) (World, details) {
	n.t.Helper()
	n.key = store.Key{Namespace: "kube-system", Workload: workload}
	return n.look()
}

func TestADependencyAnswersIfItServesAndIsReady(t *testing.T) {
	n := newNode(t)
	n.saves(parent(t, "parent"), client(t, "a-client", "kube-apiserver")) // seen before what it depends on
	dependency := func() Dependency {
		w, d := n.lookAt("a-client")
		require.Empty(t, d.findings)
		require.Len(t, w.After, 1)
		return w.After[0]
	}
	d := dependency()
	require.Equal(t, Dependency{Name: "kube-system/kube-apiserver", Known: true, Since: n.clock.now}, d)

	n.runs(parentPod("parent", cri.Running, 0))
	n.locks("parent")
	require.False(t, dependency().Answers, "nobody has asked it yet")
	n.sources.ready["c-parent"] = said[bool]{err: errors.New("status 500")}
	require.False(t, dependency().Answers)
	n.sources.ready["c-parent"] = said[bool]{value: true}
	d = dependency()
	require.True(t, d.Answers)
	require.Equal(t, n.clock.now, d.Since)
	require.Equal(t, d, dependency(), "since then")
	n.sources.lockErr = errors.New("permission denied")
	require.False(t, dependency().Answers, "what can't be seen is not known to answer")

	n.sources.lockErr = nil
	n.locks("pid 4711")
	n.sources.ready["pid 4711"] = said[bool]{value: true}
	require.True(t, dependency().Answers, "whoever serves there")
}

func TestAnUnknownDependencyIsNamed(t *testing.T) {
	n := newNode(t)
	n.saves(client(t, "client", "kube-apisever"))
	w, d := n.lookAt("client")
	require.Equal(t, []Dependency{{Name: "kube-system/kube-apisever"}}, w.After)
	require.Equal(t, []string{"UnknownDependency: after names kube-system/kube-apisever, and no such workload is protected on this node: each start waits 30s for nothing; correct the annotation"}, d.findings)
}

// Of a workload that can't be saved nobody can tell whether it is ready, and its
// clients do not wait for that.
func TestADependencyThatIsNotOnDiskIsUnknown(t *testing.T) {
	n := newNode(t)
	c := client(t, "client", "kube-apiserver")
	n.saves(c)
	n.lists(c, parent(t, "parent", func(p *v1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "x", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d"}}})
	}))
	n.runs(parentPod("parent", cri.Running, 0))
	w, d := n.lookAt("client")
	require.Equal(t, []Dependency{{Name: "kube-system/kube-apiserver"}}, w.After)
	require.Empty(t, w.missing())
	require.Equal(t, []string{"UnknownDependency: after names kube-system/kube-apiserver, of which nothing is on disk that tells how to ask it: each start waits 30s for nothing; see why it is not protected"}, d.findings)
}

func TestACycleIsRefusedAndNamed(t *testing.T) {
	n := newNode(t)
	n.saves(client(t, "itself", "itself"), client(t, "one", "two,itself"), client(t, "two", "three"), client(t, "three", "one"), client(t, "outside", "one"))
	const help = ": all of them start as if they had no annotation after; take one out"
	for workload, cycle := range map[string]string{
		"itself": "kube-system/itself after kube-system/itself",
		"one":    "kube-system/one after kube-system/two after kube-system/three after kube-system/one",
		"three":  "kube-system/three after kube-system/one after kube-system/two after kube-system/three",
	} {
		w, d := n.lookAt(workload)
		require.Equal(t, []string{"DependencyCycle: " + cycle + help}, d.findings)
		require.Empty(t, w.After)
	}
	w, d := n.lookAt("outside")
	require.Empty(t, d.findings, "what leads into a cycle is in none")
	require.Len(t, w.After, 1)
}

// An API server names etcd among its failed checks, and nobody has to tell us that
// it needs it.
func TestAnAPIServerSaysThatEtcdIsAway(t *testing.T) {
	n := protected(t)
	w, _ := n.look()
	require.Empty(t, w.After)
	n.sources.ready["c-parent"] = said[bool]{err: errors.New("probe https://127.0.0.1:6443/readyz: status 500: [-]etcd failed: reason withheld")}
	w, _ = n.look()
	require.Equal(t, []Dependency{{Name: "etcd", Known: true, Since: n.clock.now}}, w.After)
	n.sources.ready["c-parent"] = said[bool]{err: errors.New("status 500: [-]poststarthook/rbac failed")}
	w, _ = n.look()
	require.Equal(t, []Dependency{{Name: "etcd", Known: true, Answers: true, Since: n.clock.now}}, w.After, "it has its time from now on")
}

// An API server that nobody has asked, or that did not answer, has not said that etcd
// is back.
func TestOnlyAnAPIServerThatAnswersHasEtcdBack(t *testing.T) {
	n := protected(t)
	n.sources.ready["c-parent"] = said[bool]{err: errors.New("probe https://127.0.0.1:6443/readyz: status 500: [-]etcd failed: reason withheld")}
	w, _ := n.look()
	away := w.After
	n.sources.ready["c-parent"] = said[bool]{err: errors.New("connection refused")}
	w, _ = n.look()
	require.Equal(t, away, w.After)
	n.locks("")
	for range 2 {
		w, _ = n.look()
		require.Equal(t, away, w.After, "it has ended")
	}
	n.locks("parent")
	n.sources.ready["c-parent"] = said[bool]{value: true}
	w, _ = n.look()
	require.Equal(t, []Dependency{{Name: "etcd", Known: true, Answers: true, Since: n.clock.now}}, w.After)
}

// TestAnOutageOfTheAPIServer plays 30 s without an API server: its clients end after
// ten, the kubelet restarts them, and nothing of that is held against them.
func TestAnOutageOfTheAPIServer(t *testing.T) {
	for name, synced := range map[string]bool{"synced": true, "unsynced": false} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.saves(parent(t, "parent"), client(t, "client", "kube-apiserver"))
			id := "client"
			clientLock := func(holder string) {
				state := lock.State{Path: strings.ReplaceAll(lockPath, "kube-apiserver", "client"), Exists: true}
				if holder != "" {
					p := process(holder)
					state.Holder = &p
				}
				n.sources.locks[state.Path] = state
			}
			pod := func(state cri.State, attempt uint32) cri.Pod {
				p := parentPod(id, state, attempt)
				p.Name, p.Containers[0].Name = "client-x7k2p", "kube-apiserver"
				p.Sandboxes[0].Annotations["pod-checkpointer.io/lock"] = "client"
				return p
			}
			show := func(state cri.State, attempt uint32) {
				n.sources.pods.value = []cri.Pod{parentPod("parent", cri.Running, 0), pod(state, attempt)}
			}
			n.locks("parent")
			n.sources.ready["c-parent"] = said[bool]{value: true}
			n.sources.ready["c-client"] = said[bool]{value: true}
			show(cri.Running, 0)
			clientLock("client")
			for range 20 {
				n.lookAt("client")
			}

			n.sources.ready["c-parent"] = said[bool]{err: errors.New("connection refused")}
			n.sources.api.value, n.sources.api.err = nil, errors.New("connection refused")
			if !synced {
				n.sources.kubelet.value.Regime = 0
			}
			var starts []time.Duration
			from := n.clock.now
			for at := range 31 {
				switch at {
				case 10: // it could not renew its lease, and is restarted
					show(cri.Exited, 0)
					clientLock("")
				case 11:
					show(cri.Running, 1)
					clientLock("client")
				case 21: // now the kubelet takes ten seconds
					show(cri.Exited, 1)
					clientLock("")
				}
				w, _ := n.lookAt("client")
				parent, _ := w.Parent.Value()
				require.False(t, parent.Twice)
				if d := Decide(w, n.config.limits()); d.Action != nil {
					starts = append(starts, n.clock.now-from)
				}
			}
			require.Empty(t, starts, "a start waits for the API server")
			n.sources.ready["c-parent"] = said[bool]{value: true}
			w, _ := n.lookAt("client")
			require.Equal(t, "start 1", follows(Decide(w, n.config.limits())), "the parent is in the kubelet's backoff")
		})
	}
}

// The two exits of an outage do not make the third one fatal.
func TestExitsOfAnOutageDoNotCount(t *testing.T) {
	n := protected(t)
	id := n.activate(1)
	n.sources.api.value = &api.View{NodeUID: "node-uid"}
	attempts := func(excused bool, ended uint32) int {
		o := checkpointPod(id, cri.Running, ended)
		p := placed{key: n.key, ours: []cri.Pod{o}}
		n.clock.now += time.Second
		n.watch.begin(n.clock.now)
		record, _ := n.store.Workload(n.key)
		exits, _ := p.exits(n.watch, &Active{ID: id}, record.State, boot, excused).Value()
		return exits
	}
	require.Equal(t, 1, attempts(false, 1))
	require.Equal(t, 1, attempts(true, 3))
	require.Equal(t, 1, attempts(false, 3))
	require.Equal(t, 2, attempts(false, 4))
}
