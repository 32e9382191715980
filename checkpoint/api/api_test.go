package api_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api/apitest"
)

// secretValue stands in every Secret, pod and credential of these tests, and in no error.
const secretValue = "c0rrect-h0rse"

func TestViewHoldsWhatTheNodeHas(t *testing.T) {
	s := start(t)
	s.Put(
		configured(pod("kube-system", "kube-apiserver-x", "master-0", "certs", "gone", "certs"), "certs"),
		pod("kube-system", "elsewhere", "master-1", "other"),
		pod("default", "not-asked-for", "master-0", "other"),
		secret("kube-system", "certs"),
		secret("kube-system", "other"),
		configMap("kube-system", "certs"),
	)
	v, err := view(t, client(t, s.Kubeconfig()))
	require.NoError(t, err)

	require.Len(t, v.Pods, 1)
	assert.Equal(t, "kube-apiserver-x", v.Pods[0].Name)
	assert.Equal(t, "10.0.0.10", v.NodeIP)
	assert.Equal(t, "node-uid", v.NodeUID)
	assert.Equal(t, "cluster-uid", v.KubeSystemUID)
	assert.Equal(t, s.Revision(), v.ResourceVersion)
	assert.Equal(t, []byte(secretValue), v.Secrets[name("certs")].Data["key"])
	assert.Len(t, v.Secrets, 1)
	assert.Equal(t, "not a secret", v.ConfigMaps[api.Ref{Kind: api.ConfigMap, Namespace: "kube-system", Name: "certs"}].Data["key"])
	assert.Len(t, v.ConfigMaps, 1)
	assert.Equal(t, map[api.Ref]bool{name("gone"): true}, v.Missing)
	assert.Empty(t, v.Failed)
	assert.Equal(t, []string{
		"GET /api/v1/namespaces/kube-system",
		"GET /api/v1/nodes/master-0",
		// No limit, and no resourceVersion: a quorum read.
		"GET /api/v1/namespaces/kube-system/pods?fieldSelector=spec.nodeName%3Dmaster-0",
		"GET /api/v1/namespaces/kube-system/secrets/certs",
		"GET /api/v1/namespaces/kube-system/secrets/gone",
		"GET /api/v1/namespaces/kube-system/configmaps/certs",
	}, s.Requests())
}

func TestEmptyListIsAnAnswer(t *testing.T) {
	s := start(t)
	v, err := view(t, client(t, s.Kubeconfig()))
	require.NoError(t, err)
	assert.Empty(t, v.Pods)
	assert.Equal(t, s.Revision(), v.ResourceVersion)
}

func TestEveryFailureIsUnknownAndPasses(t *testing.T) {
	const (
		system = "/api/v1/namespaces/kube-system"
		node   = "/api/v1/nodes/"
		list   = "/pods"
	)
	for what, tt := range map[string]struct {
		breaks func(*apitest.Server)
		err    error
		says   string
	}{
		"refused":      {(*apitest.Server).Kill, api.ErrUnreachable, "get namespaces kube-system: API server not reachable: https://127.0.0.1:"},
		"hung":         {(*apitest.Server).Hang, api.ErrTimeout, "get namespaces kube-system: no answer in time: https://127.0.0.1:"},
		"401":          {fail("/", 401), api.ErrUnauthorized, "get namespaces kube-system: credentials not accepted: those of kubeconfig /"},
		"403 system":   {fail(system, 403), api.ErrForbidden, `get namespaces kube-system: forbidden: namespaces "kube-system" is forbidden: User "apitest"`},
		"403 node":     {fail(node, 403), api.ErrForbidden, "get nodes master-0: forbidden: "},
		"403 list":     {fail(list, 403), api.ErrForbidden, "list pods in namespace kube-system: forbidden: "},
		"403 remedy":   {fail(list, 403), api.ErrForbidden, "a Role in namespace kube-system must allow verb list on resource pods: see manifests/base/rbac.yaml"},
		"403 cluster":  {fail(node, 403), api.ErrForbidden, "a ClusterRole must allow verb get on resource nodes, resourceName master-0"},
		"404 of paths": {fail("/", 404), api.ErrAnswer, "404 Not Found: is https://127.0.0.1:"},
		"404 node":     {fail(node, 404), api.ErrAnswer, "get nodes master-0: "},
		"404 list":     {fail(list, 404), api.ErrAnswer, "list pods in namespace kube-system: "},
		"429":          {fail(list, 429), api.ErrThrottled, "429 Too Many Requests"},
		"500":          {fail(list, 500), api.ErrServer, "API server fails"},
		"503":          {fail("/", 503), api.ErrServer, "apitest is not ready"},
		"504":          {fail(list, 504), api.ErrServer, "API server fails"},
		"no node":      {func(s *apitest.Server) { s.Delete(node0()) }, api.ErrNodeUnknown, `there is no node "master-0": it has not registered yet, or --node-name is wrong`},
		"no kube-system": {func(s *apitest.Server) {
			s.Delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}})
		}, nil, "get namespaces kube-system: not found"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.Put(pod("kube-system", "p", "master-0"))
			c := client(t, s.Kubeconfig())
			tt.breaks(s)
			limit := 10 * time.Second
			if errors.Is(tt.err, api.ErrTimeout) {
				limit = 300 * time.Millisecond
			}
			v, err := viewWithin(t, c, limit)
			require.ErrorContains(t, err, tt.says)
			if tt.err != nil {
				require.ErrorIs(t, err, tt.err)
			}
			assert.Zero(t, v, "half a View")
			assert.LessOrEqual(t, len(s.Requests()), 3, "retried")

			s.Heal()
			s.Restart()
			s.SetKubeSystemUID("cluster-uid")
			s.Put(node0())
			v, err = view(t, c)
			require.NoError(t, err)
			assert.Len(t, v.Pods, 1)
		})
	}
}

func TestSecretIsMissingOnlyIfTheServerSaysSo(t *testing.T) {
	for what, tt := range map[string]struct {
		breaks func(*apitest.Server)
		err    error // nil: missing
	}{
		"absent":      {func(s *apitest.Server) { s.Delete(secret("kube-system", "certs")) }, nil},
		"403":         {fail("/secrets/certs", 403), api.ErrForbidden},
		"404 of path": {fail("/secrets/certs", 404), api.ErrAnswer},
		"429":         {fail("/secrets/certs", 429), api.ErrThrottled},
		"500":         {fail("/secrets/certs", 500), api.ErrServer},
		"503":         {fail("/secrets/certs", 503), api.ErrServer},
		"404 of another": {func(s *apitest.Server) {
			s.Answer("/secrets/certs", reply(404, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound","details":{"kind":"namespaces","name":"kube-system"}}`))
		}, api.ErrAnswer},
		"hung": {func(s *apitest.Server) {
			s.Answer("/secrets/certs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		}, api.ErrTimeout},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.Put(pod("kube-system", "p", "master-0", "good", "certs"), secret("kube-system", "good"), secret("kube-system", "certs"))
			tt.breaks(s)
			v, err := viewWithin(t, client(t, s.Kubeconfig()), time.Second)
			require.NoError(t, err)
			assert.Contains(t, v.Secrets, name("good"))
			assert.NotContains(t, v.Secrets, name("certs"))
			assert.Equal(t, tt.err == nil, v.Missing[name("certs")])
			require.ErrorIs(t, v.Failed[name("certs")], tt.err)
		})
	}
}

func TestListIsWholeOrUnknown(t *testing.T) {
	s := start(t)
	s.Put(pod("kube-system", "a", "master-0"), pod("kube-system", "b", "master-0"), pod("kube-system", "c", "master-0"))
	c := client(t, s.Kubeconfig())
	s.Page(1)
	v, err := view(t, c)
	require.NoError(t, err)
	assert.Len(t, v.Pods, 3)

	s.Answer("/pods", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("continue") {
			reply(410, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}`)(w, r)
			return
		}
		reply(200, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5","continue":"x"},"items":[]}`)(w, r)
	})
	_, err = view(t, c)
	require.ErrorIs(t, err, api.ErrRefused)
}

func TestResourceVersionIsOfTheOldestList(t *testing.T) {
	s := start(t)
	for namespace, version := range map[string]string{"a": "1000", "b": "999", "c": "1001"} {
		s.Answer("/namespaces/"+namespace+"/pods", reply(200, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"`+version+`"}}`))
	}
	c, err := api.New(api.Config{Kubeconfig: s.Kubeconfig(), Node: "master-0", Namespaces: []string{"a", "b", "c", "a"}})
	require.NoError(t, err)
	v, err := view(t, c)
	require.NoError(t, err)
	assert.Equal(t, "999", v.ResourceVersion)
	assert.Len(t, s.Requests(), 5)
}

func TestAnotherClusterAndARewindAreSeen(t *testing.T) {
	s := start(t)
	c := client(t, s.Kubeconfig())
	before, err := view(t, c)
	require.NoError(t, err)
	s.SetKubeSystemUID("another")
	s.Rewind(7)
	after, err := view(t, c)
	require.NoError(t, err)
	assert.Equal(t, "cluster-uid", before.KubeSystemUID)
	assert.Equal(t, "another", after.KubeSystemUID)
	assert.Equal(t, "7", after.ResourceVersion)
}

func TestViewEndsWhenCanceled(t *testing.T) {
	s := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.Answer("/nodes/", func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	_, err := client(t, s.Kubeconfig()).View(ctx, refs, nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestNewRefusesWhatWouldReadAsAnEmptyNode(t *testing.T) {
	for _, config := range []api.Config{
		{Node: "n", Namespaces: []string{"kube-system"}, Endpoint: "https://127.0.0.1"},
		{Kubeconfig: "k", Namespaces: []string{"kube-system"}},
		{Kubeconfig: "k", Node: "n"},
		{Kubeconfig: "k", Node: "n", Namespaces: []string{""}},
	} {
		_, err := api.New(config)
		assert.Error(t, err, "%+v", config)
	}
}

func start(t *testing.T) *apitest.Server {
	t.Helper()
	s := apitest.Start(t)
	s.SetKubeSystemUID("cluster-uid")
	s.Put(node0())
	return s
}

func client(t *testing.T, kubeconfig string) *api.Client {
	t.Helper()
	c, err := api.New(api.Config{Kubeconfig: kubeconfig, Node: "master-0", Namespaces: []string{"kube-system"}})
	require.NoError(t, err)
	return c
}

func view(t *testing.T, c *api.Client) (api.View, error) {
	t.Helper()
	return viewWithin(t, c, 10*time.Second)
}

func viewWithin(t *testing.T, c *api.Client, d time.Duration) (api.View, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	v, err := c.View(ctx, refs, nil)
	if err != nil {
		assert.NotContains(t, err.Error(), secretValue)
		assert.NotContains(t, err.Error(), apitest.Token)
		assert.NotContains(t, err.Error(), "/api/", "a URL beside the words")
	}
	for _, err := range v.Failed {
		assert.NotContains(t, err.Error(), secretValue)
	}
	return v, err
}

// refs names the objects of a pod's volumes.
func refs(p *corev1.Pod) (names []api.Ref, protected bool) {
	for _, v := range p.Spec.Volumes {
		if v.Secret != nil {
			names = append(names, api.Ref{Kind: api.Secret, Namespace: p.Namespace, Name: v.Secret.SecretName})
		} else {
			names = append(names, api.Ref{Kind: api.ConfigMap, Namespace: p.Namespace, Name: v.ConfigMap.Name})
		}
	}
	return names, p.Labels["protected"] != "no"
}

func node0() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "master-0", UID: "node-uid"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "master-0"},
			{Type: corev1.NodeInternalIP, Address: "10.0.0.10"},
			{Type: corev1.NodeInternalIP, Address: "fd00::10"},
		}},
	}
}

func pod(namespace, name, node string, secrets ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: secretValue}}}}
	for _, s := range secrets {
		source := corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: s}}
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: s, VolumeSource: source})
	}
	return p
}

func secret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string][]byte{"key": []byte(secretValue)},
	}
}

// configured is the pod with volumes of ConfigMaps.
func configured(p *corev1.Pod, configMaps ...string) *corev1.Pod {
	for _, name := range configMaps {
		source := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}
		source.ConfigMap.Name = name
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	}
	return p
}

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"key": "not a secret"},
	}
}

func name(secret string) api.Ref {
	return api.Ref{Kind: api.Secret, Namespace: "kube-system", Name: secret}
}

func fail(part string, code int) func(*apitest.Server) {
	return func(s *apitest.Server) { s.Fail(part, code) }
}

func reply(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}
}
