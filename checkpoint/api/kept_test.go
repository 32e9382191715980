package api_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
	kept, node, err := api.ParseKubeconfig(data)
	require.NoError(t, err)
	require.Equal(t, got, kept)
	require.Equal(t, asked.NodeUID, node)

	for why, broken := range map[string]string{
		"it is no kubeconfig":           "token: " + got.Value + "\n{",
		"it has no current context":     "",
		"it has no token":               strings.ReplaceAll(string(data), "token:", "username:"),
		"its token does not say how lo": strings.ReplaceAll(string(data), got.Value, "opaque"),
	} {
		_, _, err := api.ParseKubeconfig([]byte(broken))
		require.ErrorContains(t, err, why)
		require.NotContains(t, err.Error(), got.Value)
	}
}
