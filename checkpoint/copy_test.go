package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// daemonPod is the daemon's own pod from the API, by image.
func daemonPod(image string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: "pod-checkpointer-x7k2p", UID: "own", ResourceVersion: image,
			Annotations:     map[string]string{snapshot.AnnotationFormat: "1"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "pod-checkpointer", Controller: new(true)}},
		},
		Spec: v1.PodSpec{
			NodeName: "master-1", HostNetwork: true, ServiceAccountName: "pod-checkpointer",
			Containers: []v1.Container{{Name: "pod-checkpointer", Image: image}},
		},
	}
}

// copied is a pass that keeps the copy of own, a second later.
func (n *node) copied(l *Loop, own *v1.Pod) *Status {
	n.runsAs(own)
	n.pass(l)
	return l.Status()
}

// runsAs has the daemon run in that pod: lock table, runtime and API server say so.
func (n *node) runsAs(own *v1.Pod) {
	writer := store.LockPath(n.config.StateDir)
	if own == nil {
		delete(n.sources.locks, writer)
		return
	}
	n.lists(own)
	n.sources.locks[writer] = lock.State{Path: writer, Exists: true, Holder: &lock.Process{PID: 1, PodUID: string(own.UID), ContainerID: "c-own"}}
	n.sources.pods.value = []cri.Pod{{
		Namespace: own.Namespace, Name: own.Name, UID: string(own.UID), Source: "api",
		Sandboxes: []cri.Sandbox{{Ready: true}},
	}}
}

// onDisk is what the file of the static copy holds, "" if there is none.
func (n *node) onDisk() string {
	data, _ := n.static.ReadFile(kubelet.CopyFile)
	return string(data)
}

// counted counts the changes that are made on the disk from now on.
func (n *node) counted() *int {
	changes := new(int)
	n.disk.Fail(func(op, _ string) error {
		if op != "read" && op != "readdir" && op != "stat" && op != "open" {
			*changes++
		}
		return nil
	})
	return changes
}

func TestStaticCopyIsWrittenOnceAndThenLeftAlone(t *testing.T) {
	n := newNode(t)
	var log bytes.Buffer
	l := n.loop(&log)
	n.sources.kubelet.value = kubelet.View{} // whether it is synced is not known: an absent one is written all the same
	require.Equal(t, "written", n.copied(l, daemonPod("v1")).StaticCopy)
	want, err := snapshot.Self(daemonPod("v1"))
	require.NoError(t, err)
	require.Equal(t, string(want), n.onDisk())
	require.Contains(t, log.String(), "static copy written")
	require.Equal(t, "static copy written", l.events[len(l.events)-1].What)

	quiet, changes := log.Len(), n.counted()
	for range 5 {
		require.Equal(t, "up to date", n.copied(l, daemonPod("v1")).StaticCopy)
	}
	require.Equal(t, "up to date", n.copied(n.loop(io.Discard), daemonPod("v1")).StaticCopy, "of a daemon that was started anew")
	require.Zero(t, *changes, "at rest nothing is written")
	require.Equal(t, quiet, log.Len())
}

func TestStaticCopyIsReplacedOnlyUnderASyncedKubelet(t *testing.T) {
	n := newNode(t)
	l := n.loop(io.Discard)
	n.copied(l, daemonPod("v1"))
	old := n.onDisk()
	for _, view := range []said[kubelet.View]{
		{value: kubelet.View{Regime: kubelet.Unsynced}},
		{value: kubelet.View{Regime: kubelet.Unknown}},
		{err: errors.New("the kubelet is silent")},
		{silent: true},
	} {
		n.sources.kubelet = view
		status := n.copied(l, daemonPod("v2"))
		require.Contains(t, status.StaticCopy, "of an earlier version")
		require.Empty(t, status.Problems)
		require.Equal(t, old, n.onDisk())
	}
	n.sources.kubelet = said[kubelet.View]{value: kubelet.View{Regime: kubelet.Synced}}
	n.clock.now += n.config.KnownGoodAfter
	require.Equal(t, "written", n.copied(l, daemonPod("v2")).StaticCopy)
	require.Contains(t, n.onDisk(), `"v2"`)
}

// A version that ends after its first pass, or its fiftieth, must not take the copy
// with it that would lead in its place.
func TestStaticCopyIsReplacedOnlyByAVersionThatHasLed(t *testing.T) {
	n := newNode(t)
	n.copied(n.loop(io.Discard), daemonPod("good"))
	good := n.onDisk()
	var l *Loop
	for range 3 { // each time it is started anew
		n.clock.now += time.Hour
		l = n.loop(io.Discard)
		for range int(n.config.KnownGoodAfter / time.Second) {
			require.Equal(t, "of an earlier version; it is replaced once this version has led for 1m0s", n.copied(l, daemonPod("next")).StaticCopy)
		}
		require.Equal(t, good, n.onDisk())
	}
	require.Equal(t, "written", n.copied(l, daemonPod("next")).StaticCopy)
	require.Contains(t, n.onDisk(), `"next"`)
}

func TestStaticCopyIsKeptByItsOwnPodAlone(t *testing.T) {
	n := newNode(t)
	l := n.loop(io.Discard)
	require.Empty(t, n.copied(l, nil).StaticCopy, "in no pod")
	for name, change := range map[string]func(){
		"as the static copy":  func() { n.sources.pods.value[0].Source = "file" },
		"runtime silent":      func() { n.sources.pods.err = errors.New("silent") },
		"API server silent":   func() { n.sources.api.err = errors.New("silent") },
		"not in the view":     func() { n.lists() },
		"another of the name": func() { n.sources.api.value.Pods[0].UID = "next" },
		"on its way out":      func() { n.sources.api.value.Pods[0].DeletionTimestamp = &metav1.Time{} },
	} {
		n.runsAs(daemonPod("v1"))
		change()
		n.pass(l)
		require.Empty(t, l.Status().StaticCopy, name)
		require.NotContains(t, strings.Join(l.Status().Problems, "\n"), "static copy", name)
		n.sources.pods.err, n.sources.api.err = nil, nil
	}
	require.Empty(t, n.onDisk())

	n.runsAs(daemonPod("v1"))
	n.sources.pods.value[0].UID = "other"
	n.pass(l)
	require.Contains(t, strings.Join(l.Status().Problems, "\n"), "this daemon's pod own is in none of --namespaces")
}

func TestForeignFileInThePlaceOfTheStaticCopyStays(t *testing.T) {
	for _, foreign := range []string{
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"mine"}}`,
		"no pod at all",
	} {
		n := newNode(t)
		var log bytes.Buffer
		l := n.loop(&log)
		require.NoError(t, n.static.WriteFile(kubelet.CopyFile, []byte(foreign), 0o600))
		for range 3 {
			status := n.copied(l, daemonPod("v1"))
			require.Contains(t, strings.Join(status.Problems, "\n"), "static copy: ")
			require.Contains(t, strings.Join(status.Problems, "\n"), kubelet.ErrForeign.Error())
		}
		require.Equal(t, foreign, n.onDisk())
		require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), "said once")

		require.NoError(t, n.static.Remove(kubelet.CopyFile))
		require.Equal(t, "written", n.copied(l, daemonPod("v1")).StaticCopy)
	}
}

func TestSecondFileOfTheStaticCopyIsNamed(t *testing.T) {
	n := newNode(t)
	l := n.loop(io.Discard)
	n.copied(l, daemonPod("v1"))
	require.NoError(t, n.static.WriteFile("copy.bak", []byte(n.onDisk()), 0o600))
	require.Contains(t, strings.Join(n.copied(l, daemonPod("v2")).Problems, "\n"), "copy.bak is one too: move it out")
}

func TestStaticCopyThatCantBeMadeLeavesTheOldOne(t *testing.T) {
	n := newNode(t)
	l := n.loop(io.Discard)
	n.copied(l, daemonPod("v1"))
	old := n.onDisk()
	bad := daemonPod("v2")
	bad.Spec.RuntimeClassName = new("kata")
	status := n.copied(l, bad)
	require.Contains(t, strings.Join(status.Problems, "\n"), "spec.runtimeClassName")
	require.Equal(t, old, n.onDisk())
}

func TestStaticCopyOnAFullDiskIsTriedSlowlyAndSaidOnce(t *testing.T) {
	n := newNode(t)
	var log bytes.Buffer
	l := n.loop(&log)
	writes := 0
	n.disk.Fail(func(op, name string) error {
		if op == "write" && strings.Contains(name, "manifests") {
			writes++
			return syscall.ENOSPC
		}
		return nil
	})
	for range 21 {
		status := n.copied(l, daemonPod("v1"))
		require.Contains(t, strings.Join(status.Problems, "\n"), "no space left on device")
		require.Equal(t, "absent", status.StaticCopy)
	}
	require.Equal(t, 3, writes, "every ten seconds")
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"))
	n.disk.Fail(nil)
	for range 10 {
		n.copied(l, daemonPod("v1"))
	}
	require.NotEmpty(t, n.onDisk())
}

func TestDryRunOrToldToStopWritesNoStaticCopy(t *testing.T) {
	n := newNode(t)
	n.config.DryRun = true
	n.copied(n.loop(io.Discard), daemonPod("v1"))
	require.Empty(t, n.onDisk())

	n.config.DryRun = false
	ctx, stop := context.WithCancel(t.Context())
	stop()
	n.runsAs(daemonPod("v1"))
	n.loop(io.Discard).Pass(ctx)
	require.Empty(t, n.onDisk())
}

// await makes passes as that pod for a while, with these processes waiting for the
// lock and these pods beside its own, and returns what the last one found.
func (n *node) await(l *Loop, long time.Duration, waiters []lock.Process, pods ...cri.Pod) string {
	for range int(long / time.Second) {
		n.runsAs(daemonPod("v1"))
		writer := store.LockPath(n.config.StateDir)
		state := n.sources.locks[writer]
		state.Waiters = waiters
		n.sources.locks[writer] = state
		n.sources.pods.value = append(n.sources.pods.value, pods...)
		n.pass(l)
	}
	return strings.Join(l.Status().Problems, "\n")
}

func TestStaticCopyThatDoesNotRunIsNamed(t *testing.T) {
	n := newNode(t)
	var log bytes.Buffer
	l := n.loop(&log)
	n.copied(l, daemonPod("v1"))
	listing, err := n.manifests.List()
	require.NoError(t, err)
	uid := listing.Copies[0].UID
	runs := cri.Pod{
		Namespace: "kube-system", Name: "pod-checkpointer-static-master-1", UID: uid, Source: "file",
		Sandboxes: []cri.Sandbox{{Ready: true, Annotations: map[string]string{snapshot.AnnotationFormat: "1"}}},
	}
	waiter := lock.Process{PID: 2, PodUID: uid}

	require.Empty(t, n.await(l, copyStarts, nil), "it may yet start")
	for range 3 {
		problem := n.await(l, time.Second, nil)
		require.Contains(t, problem, "StaticCopyNotRunning: kube-system/pod-checkpointer-static-master-1 does not wait for the lock")
		require.Contains(t, problem, "rejected at admission")
		require.Equal(t, "up to date", l.Status().StaticCopy, "the file is")
	}
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), "said once")
	require.Contains(t, n.await(l, time.Second, nil, runs), "whether it can't have the image")
	runs.Containers = []cri.Container{{ID: "c-copy", State: cri.Exited}}
	require.Contains(t, n.await(l, time.Second, nil, runs), "its container is exited; see crictl logs c-copy")

	require.Empty(t, n.await(l, time.Second, []lock.Process{waiter}, runs), "it waits")
	require.Empty(t, n.await(l, copyStarts, nil, runs), "a minute anew")
	require.NotEmpty(t, n.await(l, time.Second, nil, runs))
	earlier := runs
	earlier.UID = "earlier"
	require.NotEmpty(t, n.await(l, time.Second, []lock.Process{{PID: 2, PodUID: "earlier"}}, earlier), "a copy, but of another file")
}

func TestStaticCopyThatNobodySeesIsNotSaidNotToRun(t *testing.T) {
	n := newNode(t)
	l := n.loop(io.Discard)
	n.copied(l, daemonPod("v1"))
	for name, view := range map[string]said[kubelet.View]{
		"unsynced": {value: kubelet.View{Regime: kubelet.Unsynced}},
		"silent":   {err: errors.New("the kubelet is silent")},
	} {
		n.sources.kubelet = view
		require.Empty(t, n.await(l, 2*copyStarts, nil), name)
	}
	n.sources.kubelet = said[kubelet.View]{value: kubelet.View{Regime: kubelet.Synced}}
	n.await(l, copyStarts-time.Second, nil)
	n.sources.pods.err = errors.New("silent")
	n.await(l, time.Second, nil)
	n.sources.pods.err = nil
	require.Empty(t, n.await(l, copyStarts, nil), "a minute in which all answered")
	require.NotEmpty(t, n.await(l, time.Second, nil))
}

// A static pod has none, and the kubelet asks anew for an image for which it needed some.
func TestStaticCopyThatItsImageIsNotForIsNamedAndWritten(t *testing.T) {
	n := newNode(t)
	l := n.loop(io.Discard)
	own := daemonPod("v1")
	n.sources.images.value = map[string]Image{"v1": {Present: true, Asks: Known(true)}, "v2": {Present: true, Asks: Known(false)}}
	for range 3 {
		require.Contains(t, strings.Join(n.copied(l, own).Problems, "\n"), "PullSecrets: by the kubelet's record the image v1 is for pods with the credentials")
	}
	require.Equal(t, "up to date", l.Status().StaticCopy)
	require.Equal(t, []string{"v1"}, n.sources.wants.CopyImages)
	require.Empty(t, n.copied(l, daemonPod("v2")).Problems)
}
