package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api/apitest"
)

func TestViewHoldsTheOwnersOfProtectedPods(t *testing.T) {
	s := start(t)
	surge := daemonSet("surge", "u1")
	percent := intstr.FromString("25%")
	surge.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxSurge: &percent}
	other := owned("other", "DaemonSet", "other", "u3")
	other.Labels = map[string]string{"protected": "no"}
	foreign := owned("foreign", "DaemonSet", "foreign", "u5")
	foreign.OwnerReferences[1].APIVersion = "example.org/v1"
	s.Put(surge, daemonSet("made-anew", "u2"), daemonSet("other", "u3"),
		owned("a", "DaemonSet", "surge", "u1"), owned("b", "DaemonSet", "surge", "u1"),
		owned("c", "DaemonSet", "made-anew", "old"), owned("d", "DaemonSet", "gone", "u4"),
		owned("e", "ReplicaSet", "web", "u6"), owned("f", "DaemonSet", "../../secrets", "u7"),
		pod("kube-system", "bare", "master-0"), other, foreign)
	s.Requests()
	v, err := view(t, client(t, s.Kubeconfig()))
	require.NoError(t, err)

	escapes := api.Owner{Namespace: "kube-system", Kind: "DaemonSet", Name: "../../secrets", UID: "u7"}
	require.ErrorIs(t, v.Owners[escapes].Err, api.ErrAnswer)
	delete(v.Owners, escapes)
	assert.Equal(t, map[api.Owner]api.OwnerSpec{
		{Namespace: "kube-system", Kind: "DaemonSet", Name: "surge", UID: "u1"}:      {Found: true, UID: "u1", MaxSurge: "25%"},
		{Namespace: "kube-system", Kind: "DaemonSet", Name: "made-anew", UID: "old"}: {Found: true, UID: "u2"},
		{Namespace: "kube-system", Kind: "DaemonSet", Name: "gone", UID: "u4"}:       {},
	}, v.Owners)
	assert.Equal(t, []string{
		"GET /apis/apps/v1/namespaces/kube-system/daemonsets/surge", // once, although two pods have it
		"GET /apis/apps/v1/namespaces/kube-system/daemonsets/made-anew",
		"GET /apis/apps/v1/namespaces/kube-system/daemonsets/gone",
	}, s.Requests()[3:])
}

func TestOwnerIsGoneOnlyIfTheServerSaysSo(t *testing.T) {
	const path = "/daemonsets/"
	for what, tt := range map[string]struct {
		breaks func(*apitest.Server)
		err    error
	}{
		"403":            {fail(path, 403), api.ErrForbidden},
		"404 of path":    {fail(path, 404), api.ErrAnswer},
		"500":            {fail(path, 500), api.ErrServer},
		"not JSON":       {answer(path, "<html>"+secretValue), api.ErrAnswer},
		"another kind":   {answer(path, `{"kind":"Status","metadata":{"namespace":"kube-system","name":"ds","uid":"u"}}`), api.ErrAnswer},
		"another object": {answer(path, `{"kind":"DaemonSet","metadata":{"namespace":"kube-system","name":"x","uid":"u"}}`), api.ErrAnswer},
		"no UID":         {answer(path, `{"kind":"DaemonSet","metadata":{"namespace":"kube-system","name":"ds"}}`), api.ErrAnswer},
		"empty":          {answer(path, ""), api.ErrAnswer},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.Put(daemonSet("ds", "u"), owned("p", "DaemonSet", "ds", "u"))
			tt.breaks(s)
			v, err := view(t, client(t, s.Kubeconfig()))
			require.NoError(t, err)
			spec := v.Owners[api.Owner{Namespace: "kube-system", Kind: "DaemonSet", Name: "ds", UID: "u"}]
			require.ErrorIs(t, spec.Err, tt.err)
			assert.NotContains(t, spec.Err.Error(), secretValue)
			assert.Equal(t, api.OwnerSpec{Err: spec.Err}, spec)
		})
	}
}

func answer(part, body string) func(*apitest.Server) {
	return func(s *apitest.Server) { s.Answer(part, reply(http.StatusOK, body)) }
}

func daemonSet(name string, uid types.UID) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, UID: uid}}
}

func owned(name, kind, owner string, uid types.UID) *corev1.Pod {
	p := pod("kube-system", name, "master-0")
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "not-the-controller", UID: "c"},
		{APIVersion: "apps/v1", Kind: kind, Name: owner, UID: uid, Controller: &yes},
	}
	return p
}
