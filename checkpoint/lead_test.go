package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// copyOf is a copy of the daemon that knows format 2 of the store, just seen.
func copyOf(name, source string, change ...func(*instance)) instance {
	c := instance{Self: Self{PodUID: "uid-" + name, Namespace: "kube-system", Name: name, Source: source}, Format: 2, Image: "daemon:" + name}
	for _, f := range change {
		f(&c)
	}
	return c
}

func formatOf(format int) func(*instance)    { return func(c *instance) { c.Format = format } }
func waited(d time.Duration) func(*instance) { return func(c *instance) { c.Waits = d } }
func unknown(c *instance)                    { *c = instance{Self: Self{PodUID: c.PodUID}, Waits: c.Waits} }
func queue(waiting ...instance) []instance   { return waiting }
func findingOf(findings []string) (kinds []string) {
	for _, f := range findings {
		kind, _, _ := strings.Cut(f, ":")
		kinds = append(kinds, kind)
	}
	return kinds
}

func TestWhoMakesWayForWhom(t *testing.T) {
	static, api := copyOf("static", "file"), copyOf("api", "api")
	host := instance{}
	for _, tt := range []struct {
		name     string
		self     instance
		waiting  []instance
		to       string
		findings []string
	}{
		{"nobody waits", static, nil, "", nil},
		{"the static copy, for a pod of the API", static, queue(api), "kube-system/api", nil},
		{"no other leader: a pod of the API", api, queue(static), "", nil},
		{"no other leader: a daemon on the host", host, queue(static), "", nil},
		{"no other leader: one whose pod is not known", copyOf("static", "file", unknown), queue(api), "", nil},
		{"not for another static copy", static, queue(copyOf("twin", "file")), "", nil},
		{"not for a daemon on the host", static, queue(host), "", nil},
		{"not for one whose pod is not known yet", static, queue(copyOf("api", "api", unknown)), "", nil},

		{"a newer format than the store's can be read", static, queue(copyOf("api", "api", formatOf(3))), "kube-system/api", nil},
		{"an older one gets no turn", static, queue(copyOf("api", "api", formatOf(1))), "", []string{"NewerFormat"}},
		{"nor does one that says none", static, queue(copyOf("api", "api", formatOf(0))), "", []string{"NewerFormat"}},
		{"a static copy that can't take over is named too", api, queue(copyOf("static", "file", formatOf(1))), "", []string{"NewerFormat"}},

		{"the turn would go to the first", static, queue(copyOf("old", "api", formatOf(1)), api), "", []string{"NewerFormat"}},
		{"which is a daemon on the host", static, queue(host, api), "", nil},
		{"which is not known", static, queue(copyOf("new", "api", unknown), api), "", nil},
		{"which makes way in its turn", static, queue(copyOf("twin", "file"), api), "kube-system/api", nil},
		{"who comes later does not count", static, queue(api, copyOf("old", "api", formatOf(1))), "kube-system/api", []string{"NewerFormat"}},

		{"two DaemonSets", api, queue(copyOf("other", "api", waited(time.Minute))), "", []string{"SecondDaemon"}},
		{"the old pod of a rolling update ends", api, queue(copyOf("other", "api", waited(time.Minute-1))), "", nil},
		{"two static copies", static, queue(copyOf("twin", "file", waited(time.Minute))), "", []string{"SecondDaemon"}},
		{"a daemon on the host before a DaemonSet", host, queue(copyOf("api", "api", waited(time.Minute))), "", []string{"SecondDaemon"}},
		{"the static copy waits for years", api, queue(copyOf("static", "file", waited(time.Hour))), "", nil},
		{"who is not known is not named", api, queue(copyOf("other", "api", waited(time.Hour), unknown)), "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			to, findings := yields(tt.self, 2, tt.waiting)
			require.Equal(t, tt.to, to)
			require.Equal(t, tt.findings, findingOf(findings), findings)
		})
	}
}

func TestFindingsNameBothCopiesAndWhatHelps(t *testing.T) {
	_, findings := yields(copyOf("new", "api"), 2, queue(
		copyOf("old", "api", formatOf(1)), copyOf("second", "api", waited(time.Hour))))
	require.Equal(t, []string{
		"NewerFormat: kube-system/old (image daemon:old) can read format 1 of the store, which has 2: it gets no turn; image daemon:new can read it",
		"SecondDaemon: kube-system/new leads and kube-system/second waits: one node needs one of them, remove the other",
	}, findings)
	_, findings = yields(instance{}, 2, queue(copyOf("second", "api", waited(time.Hour))))
	require.ErrorContains(t, errors.New(findings[0]), "a daemon outside of any pod leads and ")
}

// daemonSeen is a copy of the daemon as the runtime shows it.
func daemonSeen(name, source, format string) cri.Pod {
	return cri.Pod{
		Namespace: "kube-system", Name: name, UID: "uid-" + name, Source: source,
		Sandboxes:  []cri.Sandbox{{Ready: true, Annotations: map[string]string{"pod-checkpointer.io/format": format}}},
		Containers: []cri.Container{{ID: "c-uid-" + name, Name: "pod-checkpointer", Image: "daemon:" + name, State: cri.Running}},
	}
}

// writers has the lock table show who holds the writer's lock and who waits.
func (n *node) writers(holder string, waiters ...string) {
	n.locks(holder, waiters...)
	n.sources.locks[store.LockPath(n.config.StateDir)] = n.sources.locks[lockPath]
	delete(n.sources.locks, lockPath)
}

func TestSelfIsTheHolderOfTheWritersLock(t *testing.T) {
	n := newNode(t)
	require.Zero(t, n.observe().self, "nobody is seen to hold it")
	n.runs(daemonSeen("static-master-1", "file", "1"))
	n.runs(daemonSeen("ds-x7k2p", "api", "2"))
	n.writers("uid-static-master-1", "uid-ds-x7k2p", "pid 7")
	s := n.observe()
	require.Equal(t, instance{
		Self:   Self{PodUID: "uid-static-master-1", ContainerID: "c-uid-static-master-1", Namespace: "kube-system", Name: "static-master-1", Source: "file"},
		Format: 1, Image: "daemon:static-master-1",
	}, s.self)
	n.clock.now += 5 * time.Second
	s = n.observe()
	require.Equal(t, []instance{{
		Self:   Self{PodUID: "uid-ds-x7k2p", ContainerID: "c-uid-ds-x7k2p", Namespace: "kube-system", Name: "ds-x7k2p", Source: "api"},
		Format: 2, Image: "daemon:ds-x7k2p", Waits: 5 * time.Second,
	}, {Waits: 5 * time.Second}}, s.waiting)

	// Its own container may be unknown to one in a cgroup namespace of its own.
	n.sources.locks[store.LockPath(n.config.StateDir)] = lock.State{Holder: &lock.Process{PID: 1, PodUID: "uid-static-master-1"}}
	require.Equal(t, "c-uid-static-master-1", n.observe().self.ContainerID)

	n.sources.pods.err = errors.New("the runtime is silent")
	require.Equal(t, Self{PodUID: "uid-static-master-1"}, n.observe().self.Self)
	n.sources.pods.err = nil
	n.config.DryRun, n.observer.config.DryRun = true, true
	require.Zero(t, n.observe().self, "a dry run is not who holds it")
}

func TestLeaderEndsItsPassAndMakesWay(t *testing.T) {
	n := protected(t)
	n.runs(daemonSeen("static-master-1", "file", "1"))
	n.runs(daemonSeen("ds-x7k2p", "api", "1"))
	n.writers("uid-static-master-1", "uid-ds-x7k2p")
	n.locks("") // the parent's: a start is due
	n.lists()
	n.sources.pods.value = append(n.sources.pods.value[:0:0], n.sources.pods.value[2:]...)
	var log bytes.Buffer
	l := n.loop(&log)
	n.clock.now += time.Second
	err := l.Run(t.Context(), nil)
	require.ErrorIs(t, err, ErrYield)
	require.ErrorContains(t, err, ": kube-system/ds-x7k2p")
	listing, err := n.manifests.List()
	require.NoError(t, err)
	require.Len(t, listing.Ours, 1, "what was due is done first")
	require.Equal(t, "kube-system/static-master-1", l.Status().Leader)
	require.Equal(t, []string{"kube-system/ds-x7k2p"}, l.Status().Waiting)
	require.Contains(t, log.String(), `msg="leads as a pod" pod=kube-system/static-master-1 from=file`)
}

func TestSecondDaemonIsToldInTheStatus(t *testing.T) {
	n := newNode(t)
	n.runs(daemonSeen("ds-a", "api", "1"))
	n.runs(daemonSeen("ds-b", "api", "1"))
	n.writers("uid-ds-a", "uid-ds-b")
	l := n.loop(io.Discard)
	n.pass(l)
	require.Empty(t, l.Status().Problems)
	for range 60 {
		n.pass(l)
	}
	require.Equal(t, []string{"SecondDaemon: kube-system/ds-a leads and kube-system/ds-b waits: one node needs one of them, remove the other"}, l.Status().Problems)
}

// Whose lock file was replaced is one of two who may write: it gives up at once.
func TestLeaderWhoseLockFileIsGoneGivesUp(t *testing.T) {
	n := newNode(t)
	l := New(n.config, Parts{Clock: n.clock, Sources: n.sources, Effects: still{t}, Store: n.store, Manifests: n.manifests, Held: func() bool { return false }})
	err := l.Run(t.Context(), nil)
	require.ErrorIs(t, err, ErrYield)
	require.ErrorContains(t, err, "the file of the writer's lock in /var/lib/pod-checkpointer was removed or replaced")
}

// hung are sources of which one hangs, as none should.
type hung struct {
	Sources
	until chan struct{}
}

func (h hung) Lock(path string) (lock.State, error) {
	<-h.until
	return h.Sources.Lock(path)
}

func TestWatchdogCountsBeatsWithoutAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		until := make(chan struct{})
		l := New(n.config, Parts{Clock: n.clock, Sources: hung{n.sources, until}, Effects: still{t}, Store: n.store, Manifests: n.manifests})
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = l.Run(ctx, nil) }()
		began := time.Now()
		require.EqualError(t, l.Watch(ctx), "no pass has ended for 30s")
		require.Equal(t, passLimit, time.Since(began))

		close(until) // passes end again
		watched := make(chan error, 1)
		go func() { watched <- l.Watch(ctx) }()
		time.Sleep(time.Hour)
		stop()
		require.NoError(t, <-watched)
	})
}
