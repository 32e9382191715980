//go:build e2e

package bench

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd/api"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api/apitest"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri/critest"
)

const (
	nodeName = "master"
	nodeIP   = "10.99.0.1"
)

// measureStart starts the daemon as after a power cut, with each API server
// that is no help.
func measureStart(ctx context.Context, t *testing.T, p programs, add func(row)) {
	server := apitest.Start(t)
	runtime := critest.Start(t)
	for _, away := range []struct {
		name string
		do   func()
	}{
		{"refused", server.Kill},
		{"hung", func() { server.Restart(); server.Hang() }},
		{"black-holed", func() { server.Continue(); server.BlackHole() }},
	} {
		away.do()
		s := series{what: "start: exec of the daemon to manifest, API " + away.name, unit: milliseconds}
		for range *runs {
			n := newNode(t, p.disk, server, runtime)
			begin, end, points := n.start(ctx, t, p.podCheckpointer)
			s.add(begin, end, points...)
		}
		say("start, API %s: %.1f ms", away.name, median(s.values))
		add(row{series: s, limit: new(150.0)})
	}
}

// node is a master after a power cut, as far as the daemon looks at one.
type node struct {
	dir, kubeconfig, cri string
}

func (n node) path(name string) string { return filepath.Join(n.dir, name) }

func newNode(t *testing.T, disk string, server *apitest.Server, runtime *critest.Server) node {
	t.Helper()
	dir, err := os.MkdirTemp(disk, "node-") //nolint:usetesting // t.TempDir may lie in memory, where an fsync costs nothing
	require.NoError(t, err)
	n := node{dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig"), cri: runtime.Endpoint()}
	for _, name := range []string{"manifests", "locks", "kubelet"} {
		require.NoError(t, os.Mkdir(n.path(name), 0o755))
	}
	server.WriteKubeconfig(n.kubeconfig, &api.AuthInfo{Token: apitest.Token})
	pod, secret := parent(t, n.path("locks"))
	n.commit(t, pod, secret)

	old := critest.Sandbox{ID: "old", Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Annotations: map[string]string{"kubernetes.io/config.source": "api"}}
	runtime.Run(old, critest.Container{ID: "ended", Name: pod.Spec.Containers[0].Name, State: runtimeapi.ContainerState_CONTAINER_EXITED})
	own := critest.Sandbox{ID: "own", Namespace: pod.Namespace, Name: "pod-checkpointer-" + nodeName, UID: "own", Ready: true, Annotations: map[string]string{"kubernetes.io/config.source": "file"}}
	runtime.Run(own, critest.Container{ID: "runs", Name: "pod-checkpointer", State: runtimeapi.ContainerState_CONTAINER_RUNNING})
	runtime.Images(pod.Spec.Containers[0].Image)
	unix.Sync() // what was written here is not the daemon's to wait for
	return n
}

// commit puts the one generation into a new state directory.
func (n node) commit(t *testing.T, pod *corev1.Pod, secret *corev1.Secret) {
	t.Helper()
	taken, err := snapshot.Take(pod, snapshot.Objects{Secrets: map[string]*corev1.Secret{secret.Name: secret}},
		snapshot.Config{LockDir: n.path("locks"), Node: nodeName})
	require.NoError(t, err)
	data, err := json.Marshal(taken.Pod)
	require.NoError(t, err)
	draft := store.Draft{Pod: data, Source: store.Source{PodName: pod.Name, PodUID: string(pod.UID), Node: nodeName}}
	for _, v := range taken.Volumes {
		volume := store.Volume{Name: v.Name, Optional: v.Optional}
		for _, f := range v.Files {
			volume.Files = append(volume.Files, store.File{Path: f.Path, Data: f.Data, Mode: f.Mode, UID: f.UID, GID: f.GID})
		}
		draft.Volumes = append(draft.Volumes, volume)
	}
	namespace, workload, err := snapshot.Workload(pod)
	require.NoError(t, err)
	dir, err := durable.Create(n.path("state"), 0o700)
	require.NoError(t, err)
	disk, err := store.Open(dir)
	require.NoError(t, err)
	_, err = disk.Commit(store.Key{Namespace: namespace, Workload: workload}, draft)
	require.NoError(t, err)
}

// parent is the pod of kube-apiserver.yaml, as a controller makes it,
// and a Secret of the size of the real one.
func parent(t *testing.T, locks string) (*corev1.Pod, *corev1.Secret) {
	t.Helper()
	data, err := os.ReadFile("../../manifests/control-plane/kube-apiserver.yaml")
	require.NoError(t, err)
	var set appsv1.DaemonSet
	require.NoError(t, yaml.UnmarshalStrict(data, &set))
	yes := true
	pod := &corev1.Pod{ObjectMeta: set.Spec.Template.ObjectMeta, Spec: set.Spec.Template.Spec}
	pod.Name, pod.Namespace, pod.UID = set.Name+"-x7k2p", set.Namespace, "2b5a1c7e-6d0e-4b3f-9a55-0c5c1f6f7a01"
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: set.Name, UID: "5d0c", Controller: &yes}}
	pod.Spec.NodeName, pod.Status.HostIP = nodeName, nodeIP
	secret := &corev1.Secret{Data: map[string][]byte{}}
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.Name == "lock":
			v.HostPath.Path = locks
		case v.Secret != nil:
			secret.Name, secret.Namespace = v.Secret.SecretName, pod.Namespace
		}
	}
	for _, file := range []string{"apiserver-kubelet-client.crt", "apiserver-kubelet-client.key", "apiserver.crt", "apiserver.key", "ca.crt", "sa.key", "sa.pub"} {
		secret.Data[file] = []byte(strings.Repeat("0123456789abcde\n", 75))
	}
	return pod, secret
}

// start runs the daemon until it says that the manifest is durable.
func (n node) start(ctx context.Context, t *testing.T, daemon string) (begin, end time.Time, points []point) {
	t.Helper()
	log, err := os.Create(n.path("log"))
	require.NoError(t, err)
	defer log.Close()
	cmd := exec.CommandContext(ctx, daemon, "run", "--node-name="+nodeName, "--kubeconfig="+n.kubeconfig,
		"--cri-endpoint="+n.cri, "--static-pod-dir="+n.path("manifests"), "--kubelet-dir="+n.path("kubelet"),
		"--state-dir="+n.path("state"), "--lock-dir="+n.path("locks"), "--listen=127.0.0.1:0", "--socket="+n.path("daemon.sock"))
	cmd.Stderr = log
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	begin = time.Now()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })

	const staged, renamed = "volumes staged", "manifest renamed"
	seen := map[string]time.Time{}
	see := func(name, pattern string) bool {
		if found, _ := filepath.Glob(n.path(pattern)); len(found) > 0 && seen[name].IsZero() {
			seen[name] = time.Now()
		}
		return !seen[name].IsZero()
	}
	err = await(ctx, 20*time.Second, "there is a manifest", func() bool {
		see(staged, "state/activations/[^.]*")
		return see(renamed, "manifests/[^.]*")
	})
	var told story
	if err == nil {
		err = await(ctx, 20*time.Second, "the daemon says that it is durable", func() (written bool) {
			told, _ = readStory(n.path("log"))
			end, written = told.first(begin, "manifest written")
			return written
		})
	}
	require.NoError(t, cmd.Process.Signal(unix.SIGTERM))
	_ = cmd.Wait() // it may be the interrupt that ended it
	text, _ := os.ReadFile(n.path("log"))
	require.NoError(t, err, "%s", text)

	if at, ok := told.began(begin); ok {
		points = append(points, point{"daemon is in its main", at})
	}
	points = append(points, told.since(begin, "leading", "state Pending")...)
	for _, name := range []string{staged, renamed} {
		points = append(points, point{name, seen[name]})
	}
	return begin, end, points
}
