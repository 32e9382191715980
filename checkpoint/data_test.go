package checkpoint

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/data"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
)

const dataDir = "/var/lib/etcd"

// withData is a change of a parent: it needs a data directory.
func withData(pod *v1.Pod) {
	pod.Annotations[snapshot.AnnotationData] = dataDir
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dataDir}}})
}

func etcdIs(member string) said[data.Fingerprint] {
	return said[data.Fingerprint]{value: data.Fingerprint{Present: true, Etcd: member}}
}

// dataNode has a parent with a data directory that holds the lock.
func dataNode(t *testing.T, seen said[data.Fingerprint]) *node {
	n := newNode(t)
	n.sources.data = map[string]said[data.Fingerprint]{dataDir: seen}
	n.runs(parentPod("p", cri.Running, 0))
	n.locks("p")
	n.lists(parent(t, "p", withData))
	return n
}

// held is what the newest generation knows of its data directory.
func (n *node) held() string {
	n.t.Helper()
	record, _ := n.store.Workload(n.key)
	require.NotEmpty(n.t, record.Generations)
	return n.read(n.key, record.Generations[0]).Data.Etcd
}

// commit saves the draft if there is a reason to.
func (n *node) commit() (changed bool) {
	n.t.Helper()
	w, d := n.look()
	parents, known := w.API.Value()
	require.True(n.t, known, w.API.Why())
	if parents.Changed {
		_, err := n.store.Commit(n.key, *d.draft)
		require.NoError(n.t, err)
	}
	return parents.Changed
}

func TestSnapshotKnowsItsMember(t *testing.T) {
	n := dataNode(t, said[data.Fingerprint]{silent: true})
	w, d := n.look()
	_, known := w.API.Value()
	require.False(t, known, "it would be saved twice")
	require.Contains(t, w.API.Why(), "data directory /var/lib/etcd: has not been looked at yet")
	require.Equal(t, []string{dataDir}, d.data)

	n.sources.data[dataDir] = etcdIs("one")
	n.look() // who serves is seen for the first time
	require.True(t, n.commit())
	require.Equal(t, "one", n.held())
	require.False(t, n.commit(), "nothing has changed")
}

func TestSnapshotOfADirectoryThatHadNoMemberGetsOne(t *testing.T) {
	n := dataNode(t, etcdIs(""))
	require.True(t, n.commit())
	require.Empty(t, n.held())
	require.False(t, n.commit())
	n.sources.data[dataDir] = etcdIs("one")
	require.True(t, n.commit(), "etcd has begun")
	require.Equal(t, "one", n.held())
}

func TestMemberIsThatOnWhichSomebodyServes(t *testing.T) {
	n := dataNode(t, etcdIs("one"))
	require.True(t, n.commit())
	for name, seen := range map[string]said[data.Fingerprint]{
		"empty":      {value: data.Fingerprint{Present: true, Empty: true}},
		"absent":     {},
		"unreadable": {err: errors.New("permission denied")},
		"no member":  etcdIs(""),
	} {
		n.sources.data[dataDir] = seen
		require.False(t, n.commit(), "%s is no reason to forget the member", name)
	}
	n.sources.data[dataDir] = etcdIs("other")
	n.locks("")
	require.False(t, n.commit(), "nobody serves on it")
	n.locks("pid 1")
	require.False(t, n.commit(), "nor does one of ours")
	n.locks("p")
	n.sources.data[dataDir] = said[data.Fingerprint]{value: etcdIs("other").value, age: time.Second}
	require.False(t, n.commit(), "it was there before the parent served")
	n.sources.data[dataDir] = etcdIs("other")
	require.True(t, n.commit(), "the parent serves on it: it was restored from a backup")
	require.Equal(t, "other", n.held())

	n.lists(parent(t, "p"))
	require.True(t, n.commit(), "without the annotation")
	w, _ := n.look()
	require.NotContains(t, w.Data, int64(3))
	require.Contains(t, w.Data, int64(2))
}

func TestDataIsComparedWithWhatItHeld(t *testing.T) {
	n := dataNode(t, etcdIs("one"))
	require.True(t, n.commit())
	n.locks("")
	n.look()
	for _, tt := range []struct {
		seen  said[data.Fingerprint]
		known bool
		want  string
	}{
		{etcdIs("one"), true, ""},
		{etcdIs("other"), true, "/var/lib/etcd: it holds other, and held one"},
		{etcdIs(""), true, "/var/lib/etcd: it holds no etcd member, and held one"},
		{said[data.Fingerprint]{}, true, "/var/lib/etcd: it is absent"},
		{said[data.Fingerprint]{value: data.Fingerprint{Present: true, Empty: true}}, true, "/var/lib/etcd: it is empty"},
		{said[data.Fingerprint]{err: errors.New("permission denied")}, false, "permission denied"},
		{said[data.Fingerprint]{silent: true}, false, "has not answered yet"},
		{said[data.Fingerprint]{value: etcdIs("one").value, age: time.Hour}, false, "has not answered for 1h"},
	} {
		n.sources.data[dataDir] = tt.seen
		w, d := n.look()
		why, known := w.Data[1].Value()
		require.Equal(t, tt.known, known)
		if !known {
			require.Contains(t, w.Data[1].Why(), tt.want)
		} else {
			require.Equal(t, tt.want, why)
		}
		if tt.want != "" && tt.seen.err == nil && known {
			require.Contains(t, d.findings, "DataMissing: "+tt.want+": generation 1 does not start on that, since it may begin a second cluster; put the directory back, or mount it; a pod without pod-checkpointer.io/data is saved anew and starts on anything")
		}
		if tt.seen.err != nil {
			require.Contains(t, d.findings, "DataMissing: nobody knows what is there, and generation 1 waits for that before it starts: permission denied")
		}
	}
}

// What was there while somebody served says nothing of what is there now.
func TestStartWaitsForALookSinceNobodyServes(t *testing.T) {
	n := dataNode(t, etcdIs("one"))
	require.True(t, n.commit())
	n.sources.kubelet.value = kubelet.View{Regime: kubelet.Unsynced}
	n.sources.pods.value = nil
	n.runs(parentPod("p", cri.Exited, 0))
	n.locks("")
	n.sources.data[dataDir] = said[data.Fingerprint]{value: etcdIs("one").value, age: time.Second}
	w, _ := n.look()
	d := Decide(w, n.config.limits())
	require.Nil(t, d.Action)
	require.Equal(t, []string{"data"}, d.Frozen, d.Why)
	require.Contains(t, d.Why, "not looked at since nobody serves")
	n.sources.data[dataDir] = etcdIs("one")
	w, _ = n.look()
	require.Equal(t, int64(1), Decide(w, n.config.limits()).Action.(Start).Generation)
}

func TestLoopAsksForTheDirectoriesOfParentsAndGenerations(t *testing.T) {
	n := dataNode(t, said[data.Fingerprint]{silent: true})
	l := n.loop(io.Discard)
	n.clock.now += time.Second
	l.Pass(t.Context())
	require.Equal(t, []string{dataDir}, n.sources.wants.Data, "nothing is saved of it yet")
	n.sources.data[dataDir] = etcdIs("one")
	n.clock.now += time.Second
	l.Pass(t.Context())
	n.sources.api.err = errors.New("away")
	n.clock.now += time.Second
	l.Pass(t.Context())
	require.Equal(t, []string{dataDir}, n.sources.wants.Data)
}

func TestHostLooksAtTheDataThatIsWanted(t *testing.T) {
	h := &Host{wake: make(chan struct{}, 1)}
	h.config.Proc = t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(h.config.Proc, "1/root/var/lib/etcd/member"), 0o700))
	h.wants.Store(&Wants{})
	h.data = h.newDataPoller()
	require.Equal(t, dataless, h.data.every(true), "nobody asks")
	require.True(t, h.dataSettled())

	h.wants.Store(&Wants{Data: []string{dataDir, "/nowhere"}})
	require.False(t, h.dataSettled())
	require.Equal(t, dataRest, h.data.every(false))
	h.data.once(t.Context(), false)
	require.True(t, h.dataSettled())
	require.Equal(t, data.Fingerprint{Present: true}, h.Data(dataDir).Value)
	require.Equal(t, data.Fingerprint{}, h.Data("/nowhere").Value)
	require.Zero(t, h.Data("/not-wanted"))

	require.NoError(t, os.RemoveAll(filepath.Join(h.config.Proc, "1")))
	h.data.once(t.Context(), false)
	require.ErrorIs(t, h.Data(dataDir).Err, os.ErrNotExist, "without the host's root nothing is known")
}

// A directory on a disk that hangs is unknown, and all others are what they are.
func TestALookThatHangsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var begun atomic.Int64
		l := &looks{hanging: map[string]<-chan looked{}, look: func(dir string) (data.Fingerprint, error) {
			if begun.Add(1); dir == "dead" {
				<-release
				return data.Fingerprint{Etcd: "old"}, nil
			}
			return data.Fingerprint{Etcd: dir}, nil
		}}
		at := func() map[string]looked {
			ctx, cancel := context.WithTimeout(t.Context(), lookLimit)
			defer cancel()
			return l.at(ctx, []string{"dead", "well"})
		}
		for range 3 {
			seen := at()
			require.Equal(t, looked{found: data.Fingerprint{Etcd: "well"}}, seen["well"])
			require.ErrorIs(t, seen["dead"].err, errHangs)
		}
		require.EqualValues(t, 4, begun.Load(), "one hangs, and no other is begun beside it")
		release <- struct{}{}
		synctest.Wait()
		require.ErrorIs(t, at()["dead"].err, errHangs, "what it saw is old, and it hangs again")
		require.EqualValues(t, 6, begun.Load())
		close(release)
		synctest.Wait()
		require.Equal(t, looked{found: data.Fingerprint{Etcd: "old"}}, at()["dead"])
	})
}
