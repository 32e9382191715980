package checkpoint

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api/apitest"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// answered is a node whose API server answers on a socket: two workloads, each with
// a Secret of its own.
type answered struct {
	*node
	server *apitest.Server
	client *api.Client
	loop   *Loop
}

const hidden = "c0rrect-h0rse"

func newAnswered(t *testing.T) *answered {
	server := apitest.Start(t)
	server.Put(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "master-1", UID: "node-uid"}})
	client, err := api.New(api.Config{Kubeconfig: server.Kubeconfig(), Node: "master-1", Namespaces: []string{"kube-system"}})
	require.NoError(t, err)
	n := newNode(t)
	a := &answered{n, server, client, n.loop(io.Discard)}
	server.Put(parent(t, "parent", withSecret), certs("certs", hidden))
	server.Put(clientOf(t), certs("other", hidden))
	for uid, name := range map[string]string{"parent": "kube-apiserver", "scheduler": "scheduler"} {
		pod := parentPod(uid, cri.Running, 0)
		pod.Name = name + "-x7k2p"
		pod.Sandboxes[0].Annotations["pod-checkpointer.io/lock"] = name
		n.runs(pod)
		n.sources.ready["c-"+uid] = said[bool]{value: true}
	}
	n.locks("parent")
	holder := process("scheduler")
	file := strings.ReplaceAll(lockPath, "kube-apiserver", "scheduler")
	n.sources.locks[file] = lock.State{Path: file, Exists: true, Holder: &holder}
	return a
}

// clientOf is a second workload, whose Secret is "other".
func clientOf(t *testing.T) *v1.Pod {
	pod := client(t, "scheduler", "")
	withSecret(pod)
	pod.Spec.Volumes[len(pod.Spec.Volumes)-1].Secret.SecretName = "other"
	return pod
}

func certs(name, key string) *v1.Secret {
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Data: map[string][]byte{"tls.key": []byte(key)}}
}

// passes lets the daemon ask the API server and take note, and tells where the
// workload stands.
func (a *answered) passes() WorkloadStatus {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 10*time.Second)
	defer cancel()
	view, err := a.client.View(ctx, referenced, nil)
	require.NoError(a.t, err)
	a.sources.api.value = &view
	for range 3 {
		a.pass(a.loop)
	}
	for _, w := range a.loop.Status().Workloads {
		if w.Workload == a.key.String() {
			require.NotContains(a.t, w.Why+strings.Join(w.Findings, ""), hidden)
			return w
		}
	}
	require.FailNow(a.t, "no such workload")
	return WorkloadStatus{}
}

// key is the payload of a workload's newest generation.
func (a *answered) saved(workload string) (key string, generation int64) {
	a.t.Helper()
	of := store.Key{Namespace: "kube-system", Workload: workload}
	record, ok := a.store.Workload(of)
	if !ok || len(record.Generations) == 0 {
		return "", 0
	}
	generation = record.Generations[0].Seq
	volumes, err := a.store.Contents(of, generation)
	require.NoError(a.t, err)
	return string(volumes[0].Files[0].Data), generation
}

// What one workload lacks costs no other its generation, and the last one of its own
// stays; when it is there again, so is the next one.
func TestASecretThatCantBeReadCostsNothingElse(t *testing.T) {
	for what, tt := range map[string]struct {
		breaks, mends func(*apitest.Server)
		says          string
	}{
		"gone": {
			func(s *apitest.Server) { s.Delete(certs("certs", "")) },
			func(s *apitest.Server) { s.Put(certs("certs", "new "+hidden)) },
			`"certs"`,
		},
		"forbidden": {
			func(s *apitest.Server) { s.Fail("/secrets/certs", http.StatusForbidden) },
			func(s *apitest.Server) { s.Heal(); s.Put(certs("certs", "new "+hidden)) },
			"a Role in namespace kube-system must allow verb get on resource secrets, resourceName certs",
		},
		"changing while it is read": {
			func(s *apitest.Server) {
				s.Before(func(r *http.Request) {
					if strings.HasSuffix(r.URL.Path, "/secrets/certs") {
						s.Put(certs("certs", "half "+hidden))
					}
				})
			},
			func(s *apitest.Server) { s.Before(nil); s.Put(certs("certs", "new "+hidden)) },
			"get secrets certs in namespace kube-system: changed while it was read, 3 times on end",
		},
	} {
		t.Run(what, func(t *testing.T) {
			a := newAnswered(t)
			tt.breaks(a.server)
			w := a.passes()
			require.Contains(t, w.Why, tt.says, "before there is any")
			_, generation := a.saved("kube-apiserver")
			require.Zero(t, generation, "no half of a generation")
			_, generation = a.saved("scheduler")
			require.EqualValues(t, 1, generation, "and the other one has its own")

			tt.mends(a.server)
			a.passes()
			key, generation := a.saved("kube-apiserver")
			require.EqualValues(t, 1, generation)
			require.Equal(t, "new "+hidden, key)

			tt.breaks(a.server)
			a.server.Put(certs("other", "newer "+hidden))
			w = a.passes()
			require.Len(t, w.Findings, 1)
			require.Contains(t, w.Findings[0], tt.says)
			require.Contains(t, w.Findings[0], "; the last generation stays")
			key, generation = a.saved("kube-apiserver")
			require.EqualValues(t, 1, generation)
			require.Equal(t, "new "+hidden, key)
			key, generation = a.saved("scheduler")
			require.EqualValues(t, 2, generation)
			require.Equal(t, "newer "+hidden, key)
		})
	}
}
