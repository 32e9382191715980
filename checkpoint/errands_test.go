package checkpoint

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api/apitest"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/cri/critest"
)

func TestErrandsAreDoneInTheBackground(t *testing.T) {
	server, runtime := apitest.Start(t), critest.Start(t)
	server.Put(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "master-1", UID: "node-uid"}},
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "robot", UID: "robot-uid"}})
	runtime.Images("a:1", "silent:1")
	runtime.Info("a:1", `{"imageSpec":{"config":{"Entrypoint":["/a"],"Cmd":["run"]}}}`)
	c := Defaults()
	c.Node = "master-1"
	asks, err := api.New(api.Config{Kubeconfig: server.Kubeconfig(), Node: c.Node, Namespaces: c.Namespaces})
	require.NoError(t, err)
	containers, err := cri.New(runtime.Endpoint())
	require.NoError(t, err)
	heard := make(chan bool, 100)
	e := newErrander(c, &handClock{now: time.Minute}, func(news bool) { heard <- news }, asks.Token, containers)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.run(ctx) }()

	want := TokenWant{Namespace: "kube-system", TokenRef: snapshot.TokenRef{ServiceAccount: "robot", Audience: "vault"}, AccountUID: "robot-uid", NodeUID: "node-uid"}
	absent := want
	absent.ServiceAccount = "absent"
	good, wrong := Trust{server.URL(), string(server.CA())}, Trust{server.URL(), string(apitest.Start(t).CA())}
	nobody := Trust{"https://127.0.0.1:1", string(server.CA())}
	e.want(Errands{
		Tokens: []TokenWant{want, absent}, Entrypoints: []string{"a:1", "silent:1", "absent:1"}, Trusts: []Trust{good, wrong, nobody},
	})
	for range 8 {
		require.True(t, <-heard)
	}
	token := e.tokens.answer(want)
	require.NoError(t, token.Err)
	require.Equal(t, year, token.Value.Expires.Sub(token.Value.Issued))
	require.True(t, keptToken{token.Value.Value, api.ClaimsOf(token.Value.Value)}.fits(want, []TokenWant{want}, nil))
	require.ErrorContains(t, e.tokens.answer(absent).Err, "not found")

	require.Equal(t, &snapshot.Image{Entrypoint: []string{"/a"}, Command: []string{"run"}}, e.entrypoints.answer("a:1").Value)
	silent := e.entrypoints.answer("silent:1")
	require.NoError(t, silent.Err)
	require.Nil(t, silent.Value)
	require.ErrorContains(t, e.entrypoints.answer("absent:1").Err, "the runtime does not have it")

	require.Equal(t, "", e.certificates.answer(good).Value)
	require.NoError(t, e.certificates.answer(good).Err)
	require.Contains(t, e.certificates.answer(wrong).Value, "certificate signed by unknown authority")
	require.ErrorContains(t, e.certificates.answer(nobody).Err, "connection refused")
	stop()
	require.NoError(t, <-done)
}
