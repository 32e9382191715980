package api_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api/apitest"
)

func TestWhatAKubeconfigKeepsOfAToken(t *testing.T) {
	s := issuing(t)
	p := newPlaces(t, s)
	s.WriteServiceAccount(p.ServiceAccount, apitest.Token)
	got, err := token(t, p.client(t), asked)
	require.NoError(t, err)
	data := api.Kubeconfig(got)
	kept, err := api.ParseKubeconfig(data)
	require.NoError(t, err)
	require.Equal(t, got, kept)
	require.Equal(t, asked.NodeUID, api.ClaimsOf(kept.Value).NodeUID)

	for why, broken := range map[string]string{
		"it is no kubeconfig":           "token: " + got.Value + "\n{",
		"it has no current context":     "",
		"it has no token":               strings.ReplaceAll(string(data), "token:", "username:"),
		"its token does not say how lo": strings.ReplaceAll(string(data), got.Value, "opaque"),
	} {
		_, err := api.ParseKubeconfig([]byte(broken))
		require.ErrorContains(t, err, why)
		require.NotContains(t, err.Error(), got.Value)
	}
}

func TestWhoseATokenIs(t *testing.T) {
	of := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".secret"
	}
	require.Equal(t, api.Claims{
		Account: types.NamespacedName{Namespace: "kube-system", Name: "pod-checkpointer"}, AccountUID: "account-uid", NodeUID: "node-uid",
		Audiences: []string{"https://issuer", "vault"}, Issued: time.Unix(1, 0), Expires: time.Unix(3, 0),
	}, api.ClaimsOf(of(`{"iat":1,"exp":3,"aud":["https://issuer","vault"],"kubernetes.io":{"namespace":"kube-system","node":{"name":"master-0","uid":"node-uid"},
		"serviceaccount":{"name":"pod-checkpointer","uid":"account-uid"}}}`)))
	require.Equal(t, []string{"vault"}, api.ClaimsOf(of(`{"aud":"vault"}`)).Audiences)
	for _, other := range []string{"", "opaque", "a.b.c", of("{}"), of(`{"kubernetes.io":7}`), of(`{"aud":7}`)} {
		require.Zero(t, api.ClaimsOf(other), other)
	}
}
