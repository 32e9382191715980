//go:build e2e

package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
)

const (
	many    = 50 // pods that ask to be protected
	secrets = 3  // that each of them mounts
	// filed is their namespace, of which the lab's own daemon knows nothing.
	filed = "bench"
)

// measureSnapshots starts a second daemon on a node with many pods of its own to
// protect, none of which it knows, and then changes one Secret.
func measureSnapshots(ctx context.Context, t *testing.T, p programs, add func(row)) {
	l := up(ctx, t, lab.Options{Name: "bench-snapshots", LockExec: p.lockExec, PodCheckpointer: p.podCheckpointer, MaxPods: many + 30})
	require.NoError(t, fill(ctx, l))
	what := fmt.Sprintf("first snapshot of %d pods with %d Secrets each", many, secrets)
	first := series{what: what + ": exec of the daemon to the last generation", unit: milliseconds}
	requests := series{what: "  API requests, one after the other: first to last", unit: milliseconds}
	for n := range *runs {
		d, err := startSecond(ctx, l, fmt.Sprintf("/var/lib/bench-%d", n))
		require.NoError(t, err)
		end, err := d.await(ctx, many, 1)
		require.NoError(t, err)
		asked, err := d.asked(d.begin, end)
		require.NoError(t, err)
		from, to := asked[0].At, asked[len(asked)-1].At
		first.add(d.begin, end, point{"first request", from}, point{fmt.Sprintf("request %d", len(asked)), to})
		requests.add(from, to)
		require.NoError(t, d.end())
	}
	disk := commits(t, "  the store alone: all of them to the disk", p.disk)
	memory := commits(t, "  the store alone: all of them to memory, where an fsync costs nothing", "/dev/shm")
	of := func(what string, part float64) row {
		return row{series: series{what: what, unit: percent, values: []float64{100 * part / median(first.values)}}}
	}
	for _, r := range []row{
		{series: first, limit: new(3000.0)}, {series: requests}, {series: disk}, {series: memory},
		of("  share of the API's round trips", median(requests.values)),
		of("  share of fsync", median(disk.values)-median(memory.values)),
	} {
		add(r)
	}
	measureChange(ctx, t, l, add)
}

// commits are as many generations as there are pods, in a store of their own below
// dir.
func commits(t *testing.T, what, dir string) series {
	t.Helper()
	s := series{what: what, unit: milliseconds}
	for range *runs {
		state, err := os.MkdirTemp(dir, "bench-") //nolint:usetesting // which disk it is counts
		require.NoError(t, err)
		root, err := durable.Open(state)
		require.NoError(t, err)
		opened, err := store.Open(root)
		require.NoError(t, err)
		begin := time.Now()
		for i := range many {
			draft := store.Draft{Pod: json.RawMessage(`{}`), Source: store.Source{PodName: podName(i), Node: nodeName}}
			for j := range secrets {
				volume := store.Volume{Name: secretName(i, j)}
				for name, data := range secret(i, j).Data {
					volume.Files = append(volume.Files, store.File{Path: name, Data: data, Mode: 0o644})
				}
				draft.Volumes = append(draft.Volumes, volume)
			}
			_, err := opened.Commit(store.Key{Namespace: filed, Workload: podName(i)}, draft)
			require.NoError(t, err)
		}
		s.add(begin, time.Now())
		require.NoError(t, os.RemoveAll(state))
	}
	return s
}

// measureChange changes one Secret of one pod, again and again.
func measureChange(ctx context.Context, t *testing.T, l *lab.Lab, add func(row)) {
	d, err := startSecond(ctx, l, "/var/lib/bench-change")
	require.NoError(t, err)
	defer func() { require.NoError(t, d.end()) }()
	_, err = d.await(ctx, many, 1)
	require.NoError(t, err)
	what := fmt.Sprintf("one of %d Secrets changes: ", many*secrets)
	took := series{what: what + "to its generation", unit: seconds}
	generations := series{what: "  generations written", unit: each}
	files := series{what: "  files written", unit: each}
	requests := series{what: "  API requests beside watches", unit: each}
	for n := range *runs {
		require.NoError(t, pause(ctx, 5*time.Second)) // until all watch again
		was, err := d.files()
		require.NoError(t, err)
		begin := time.Now()
		require.NoError(t, l.Call(ctx, http.MethodPatch, "/api/v1/namespaces/"+filed+"/secrets/"+secretName(0, 0), secret(0, 0), nil))
		end, err := d.await(ctx, 1, n+2)
		require.NoError(t, err)
		require.NoError(t, pause(ctx, 2*time.Second)) // for what should not come
		is, err := d.files()
		require.NoError(t, err)
		asked, err := d.asked(begin, time.Now())
		require.NoError(t, err)
		took.add(begin, end)
		generations.values = append(generations.values, float64(len(is.generations)-len(was.generations)))
		files.values = append(files.values, float64(changed(was.all, is.all)))
		requests.values = append(requests.values, float64(len(asked)))
	}
	for _, r := range []row{{series: took}, {series: generations, limit: new(1.0), of: slices.Max[[]float64]}, {series: files}, {series: requests}} {
		add(r)
	}
}

// fill makes the Secrets and the pods, and waits until they run.
func fill(ctx context.Context, l *lab.Lab) error {
	say("%d pods with %d Secrets each", many, secrets)
	api := "/api/v1/namespaces"
	if err := l.Call(ctx, http.MethodPost, api, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: filed}}, nil); err != nil {
		return err
	}
	if err := allow(ctx, l); err != nil {
		return err
	}
	for i := range many {
		var pod corev1.Pod
		var template corev1.PodTemplateSpec
		pod.ObjectMeta, _, template = idle(podName(i), nil)
		pod.Annotations = map[string]string{"pod-checkpointer.io/checkpoint": "true"}
		pod.Spec = template.Spec
		pod.Spec.NodeName = nodeName
		for j := range secrets {
			if err := l.Call(ctx, http.MethodPost, api+"/"+filed+"/secrets", secret(i, j), nil); err != nil {
				return err
			}
			name := secretName(i, j)
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: name}}})
			pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
		}
		if err := l.Call(ctx, http.MethodPost, api+"/"+filed+"/pods", pod, nil); err != nil {
			return err
		}
	}
	return awaitEvery(ctx, 500*time.Millisecond, crowding, "the pods run", func() bool {
		var pods corev1.PodList
		err := l.Call(ctx, http.MethodGet, api+"/"+filed+"/pods", nil, &pods)
		return err == nil && len(pods.Items) == many && !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
	})
}

// allow gives the daemon's account, in this namespace, what it has in kube-system.
func allow(ctx context.Context, l *lab.Lab) error {
	path := "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/%s/pod-checkpointer"
	for _, kind := range []string{"roles", "rolebindings"} {
		var object map[string]any
		if err := l.Call(ctx, http.MethodGet, fmt.Sprintf(path, "kube-system", kind), nil, &object); err != nil {
			return err
		}
		object["metadata"] = map[string]any{"name": "pod-checkpointer"}
		if err := l.Call(ctx, http.MethodPost, strings.TrimSuffix(fmt.Sprintf(path, filed, kind), "/pod-checkpointer"), object, nil); err != nil {
			return err
		}
	}
	return nil
}

func podName(i int) string       { return fmt.Sprintf("pod-%d", i) }
func secretName(i, j int) string { return fmt.Sprintf("pod-%d-secret-%d", i, j) }

// secret has a certificate's size, and is another one each time.
func secret(i, j int) corev1.Secret {
	data := make([]byte, 2<<10)
	_, _ = rand.Read(data) // never fails
	return corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secretName(i, j)},
		Data:       map[string][]byte{"tls.key": data, "tls.crt": data},
	}
}
