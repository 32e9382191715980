package checkpoint

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// known lists the observations of a World that are Known.
func known(w World) map[string]bool {
	out := map[string]bool{}
	for _, source := range []string{"store", "manifests", "lock", "runtime", "kubelet", "api", "readiness"} {
		if _, ok := w.ask(source); ok {
			out[source] = true
		}
	}
	return out
}

// TestSilenceIsUnknown has each way in which a source can fail to tell, and
// what must be Unknown by it; all the rest stays Known.
func TestSilenceIsUnknown(t *testing.T) {
	refused := errors.New("connection refused")
	for _, tt := range []struct {
		name    string
		see     func(*node)
		unknown string
		why     string
	}{
		{"runtime fails", func(n *node) { n.sources.pods.err = refused }, "runtime", "connection refused"},
		{"runtime has not answered yet", func(n *node) { n.sources.pods.silent = true }, "runtime", "runtime: has not answered yet"},
		{"runtime hangs", func(n *node) { n.sources.pods.age = 9 * time.Second }, "runtime", "runtime: has not answered for 9s"},
		{"runtime lists nothing, not even us", func(n *node) { n.sources.pods.value = nil }, "runtime", "runtime: lists no pod at all, not even this one"},
		{"kubelet fails", func(n *node) { n.sources.kubelet.err = refused }, "kubelet", "connection refused"},
		{"kubelet hangs", func(n *node) { n.sources.kubelet.age = 36 * time.Second }, "kubelet", "kubelet: has not answered for 36s"},
		{"kubelet does not tell its regime", func(n *node) { n.sources.kubelet.value = kubelet.View{Why: "no pods API"} }, "kubelet", "kubelet: no pods API"},
		{"API server fails", func(n *node) { n.sources.api.err = api.ErrUnauthorized }, "api", api.ErrUnauthorized.Error()},
		{"API server hangs", func(n *node) { n.sources.api.age = 91 * time.Second }, "api", "api: has not answered for 1m31s"},
		{"API server was not asked yet", func(n *node) { n.sources.api.silent = true }, "api", "api: has not answered yet"},
		{"lock table can't be read", func(n *node) { n.sources.lockErr = refused }, "lock", "connection refused"},
		{"probe was not asked", func(n *node) { delete(n.sources.ready, "c-parent") }, "readiness", "readiness: has not been asked of this process"},
		{"probe was asked of another process", func(n *node) {
			n.sources.ready = map[string]said[bool]{"c-another": {value: true}}
		}, "readiness", "readiness: has not been asked of this process"},
		{"probe's answer is old", func(n *node) {
			n.sources.ready["c-parent"] = said[bool]{value: true, age: 41 * time.Second}
		}, "readiness", "readiness: has not been asked of this process"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := protected(t)
			w, _ := n.look()
			require.Len(t, known(w), 7, "all are Known before")
			tt.see(n)
			w, _ = n.look()
			why, ok := w.ask(tt.unknown)
			require.False(t, ok)
			require.Equal(t, tt.why, why)
			want := map[string]bool{"store": true, "manifests": true, "lock": true, "runtime": true, "kubelet": true, "api": true, "readiness": true}
			delete(want, tt.unknown)
			if tt.unknown == "lock" { // nobody can be asked who is not seen
				delete(want, "readiness")
			}
			require.Equal(t, want, known(w))
		})
	}
}

// protected is a node whose parent is saved, holds the lock and is ready.
func protected(t *testing.T) *node {
	n := newNode(t)
	n.save(parent(t, "parent"))
	n.runs(parentPod("parent", cri.Running, 0))
	n.locks("parent")
	n.sources.ready["c-parent"] = said[bool]{value: true}
	return n
}

func TestObservesAProtectedParent(t *testing.T) {
	n := protected(t)
	n.look()
	since := n.clock.now
	w, d := n.look()
	require.Equal(t, Known(Party{Role: Parent, ID: "c-parent", Pod: "parent", Since: since}), w.Serves)
	require.Equal(t, Known[[]Party](nil), w.Queue)
	require.Equal(t, Known(Readiness{OK: true, Since: since}), w.Ready)
	require.Equal(t, Known(Containers{Live: true, Since: since}), w.Parent)
	require.Equal(t, Known[*Active](nil), w.Active)
	require.Equal(t, Known(0), w.Exits)
	require.Equal(t, Known(true), w.Synced)
	require.Equal(t, Known(Parents{Saved: map[string]bool{"parent": true}}), w.API)
	require.True(t, w.Locked)
	require.Empty(t, w.Unusable)
	require.Equal(t, boot, w.Boot)
	require.Empty(t, d.findings)
	require.Equal(t, Protected, Decide(w, n.config.limits()).State)
}

func TestUnreadableManifestsAreUnknown(t *testing.T) {
	n := protected(t)
	n.activate(1)
	absent, err := kubelet.OpenManifests(t.TempDir()+"/absent", "master-1")
	require.NoError(t, err)
	n.manifests = absent
	w, _ := n.look()
	_, ok := w.Active.Value()
	require.False(t, ok, "a directory that is absent is no empty one")
	require.NotEmpty(t, w.Active.Why())
}

func TestAManifestOfOursThatCantBeReadIsUnknown(t *testing.T) {
	n := protected(t)
	n.activate(1)
	file := kubelet.File(n.key.Namespace, n.key.Workload)
	n.disk.Fail(func(op, name string) error {
		if op == "read" && filepath.Base(name) == file {
			return syscall.EIO
		}
		return nil
	})
	w, _ := n.look()
	_, ok := w.Active.Value()
	require.False(t, ok, "it is there: its pod may run")
	n.disk.Fail(nil)

	ours, err := n.static.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, n.static.WriteFile("copy.json", ours, 0o600))
	w, d := n.look()
	require.Contains(t, w.Active.Why(), "copy.json", "a copy would stay when ours goes")
	require.Contains(t, d.findings, w.Active.Why(), "and is told before anything waits for it")
	require.NoError(t, n.static.Remove("copy.json"))

	require.NoError(t, n.static.WriteFile(file, []byte("{"), 0o600))
	w, _ = n.look()
	require.Equal(t, Known[*Active](nil), w.Active, "of what is no pod the kubelet runs nothing")

	require.NoError(t, n.static.Remove(file))
	require.NoError(t, n.static.WriteFile("somebody-else.yaml", []byte("{"), 0o600))
	w, _ = n.look()
	require.Equal(t, Known[*Active](nil), w.Active, "what others can't read is none of ours")
}

func TestUnsyncedIsKnown(t *testing.T) {
	n := protected(t)
	n.sources.kubelet.value = kubelet.View{Regime: kubelet.Unsynced}
	w, _ := n.look()
	require.Equal(t, Known(false), w.Synced)
}

func TestReadinessIsThatOfTheProcess(t *testing.T) {
	n := protected(t)
	n.look()
	began := n.clock.now
	n.sources.ready["c-parent"] = said[bool]{err: errors.New("status 500")}
	w, _ := n.look()
	require.Equal(t, Known(Readiness{Since: n.clock.now, Why: "status 500"}), w.Ready, "a refusal is an answer, and begins anew")

	n.locks("other")
	n.sources.ready["c-other"] = said[bool]{value: true}
	w, _ = n.look()
	ready, _ := w.Ready.Value()
	require.True(t, ready.OK)
	require.Greater(t, ready.Since, began, "another process is ready since it holds")

	n.locks("")
	w, _ = n.look()
	_, ok := w.Ready.Value()
	require.False(t, ok, "where nobody holds, nobody is ready, whoever answers at the port")
}

func TestWithoutAProbeServingLongIsReadiness(t *testing.T) {
	n := newNode(t)
	pod := parent(t, "parent")
	pod.Spec.Containers[0].ReadinessProbe = nil
	n.save(pod)
	n.locks("parent")
	w, d := n.look()
	since := n.clock.now
	ready, ok := w.Ready.Value()
	require.True(t, ok)
	require.False(t, ready.OK)
	require.Contains(t, d.findings[0], "UnsafeReadiness")
	n.clock.now = since + servedLong - time.Second
	w, _ = n.look()
	require.Equal(t, Known(Readiness{OK: true, Since: n.clock.now, Why: ready.Why}), w.Ready)
}

func TestHowLongIsCountedFromTheFirstSight(t *testing.T) {
	n := protected(t)
	n.look()
	n.locks("", "parent")
	n.look()
	free := n.clock.now
	n.look()
	w, _ := n.look()
	serves, _ := w.Serves.Value()
	require.Equal(t, Party{ID: "none", Since: free}, serves, "a free lock is free since it was seen so")
	require.Equal(t, free, w.next().Since)
	n.locks("parent")
	w, _ = n.look()
	serves, _ = w.Serves.Value()
	require.Equal(t, n.clock.now, serves.Since)
}

func TestActiveIsWhatTheDirectoryHolds(t *testing.T) {
	n := protected(t)
	n.clock.now = 5 * time.Minute
	id := n.activate(1)
	w, _ := n.look()
	require.Equal(t, &Active{ID: id, Generation: 1, Files: 1, Since: 5 * time.Minute}, w.active())

	record, _ := n.store.Workload(n.key)
	record.State.Activation.ServedBy = "c"
	_, err := n.store.SetState(n.key, record.State)
	require.NoError(t, err)
	w, _ = n.look()
	require.Equal(t, "c", w.active().ServedBy)

	n.clock.boot, n.clock.now = "the next boot", 10*time.Second
	n.watch = newWatch()
	w, _ = n.look()
	require.Equal(t, n.clock.now, w.active().Since, "in another boot its time begins anew")
}

func TestAManifestWhoseRecordIsLostIsSeen(t *testing.T) {
	n := protected(t)
	id := n.activate(1)
	lost := newNode(t)
	lost.manifests = n.manifests
	w, _ := lost.look()
	require.Equal(t, id, w.active().ID)
	require.Equal(t, Unprotected, Decide(w, n.config.limits()).State)
}

func TestGenerationsWhoseImageIsAbsent(t *testing.T) {
	const image = "images.example/kube-apiserver:v1"
	n := protected(t)
	for _, tt := range []struct {
		images said[map[string]Image]
		want   map[int64]string
	}{
		{said[map[string]Image]{value: map[string]Image{image: {Present: true}}}, map[int64]string{}},
		{said[map[string]Image]{value: map[string]Image{image: {}}}, map[int64]string{1: image}},
		{said[map[string]Image]{value: map[string]Image{}}, map[int64]string{}},
		{said[map[string]Image]{value: map[string]Image{image: {}}, err: errors.New("refused")}, map[int64]string{}},
		{said[map[string]Image]{value: map[string]Image{image: {}}, age: 6 * time.Minute}, map[int64]string{}},
		{said[map[string]Image]{silent: true}, map[int64]string{}},
	} {
		n.sources.images = tt.images
		w, _ := n.look()
		assert.Equal(t, tt.want, w.Absent)
		assert.Empty(t, w.Unusable)
	}
}

// Who holds a file that was replaced may serve, though the new one looks free.
func TestASplitLockStartsNothing(t *testing.T) {
	n := protected(t)
	n.sources.kubelet.value = kubelet.View{Regime: kubelet.Unsynced}
	n.sources.locks[lockPath] = lock.State{Path: lockPath, Exists: true, Split: true}
	w, d := n.look()
	require.Len(t, d.findings, 1)
	require.Contains(t, d.findings[0], "LockSplit: the file "+lockPath)
	decision := Decide(w, n.config.limits())
	require.Nil(t, decision.Action, decision.Why)
	require.Equal(t, []string{"lock"}, decision.Frozen)
}

// Losing the daemon's memory makes the next look more cautious, never bolder.
func TestForgettingMakesEverythingYounger(t *testing.T) {
	n := protected(t)
	n.look()
	n.look()
	before, _ := n.look()
	n.watch, n.drawn, n.observer.facts, n.content = newWatch(), nil, map[factKey]facts{}, map[store.Key]contents{}
	after, _ := n.look()
	old, _ := before.Serves.Value()
	young, _ := after.Serves.Value()
	require.Greater(t, young.Since, old.Since)
	young.Since = old.Since
	require.Equal(t, old, young)
	require.Equal(t, before.API, after.API)
}

func TestForgetsTheFactsOfGenerationsThatAreGone(t *testing.T) {
	n := protected(t)
	n.look()
	require.Len(t, n.observer.facts, 1)
	empty, err := durable.NewDisk().Dir("/empty")
	require.NoError(t, err)
	n.store, err = store.Open(empty)
	require.NoError(t, err)
	n.observe()
	require.Empty(t, n.observer.facts)
}
