package api_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api/apitest"
)

// places are where a Client may find credentials, all of them absent at first.
type places struct {
	api.Config
	server *apitest.Server
}

func newPlaces(t *testing.T, s *apitest.Server) places {
	t.Helper()
	dir := t.TempDir()
	return places{api.Config{
		ServiceAccount: filepath.Join(dir, "serviceaccount"), Endpoint: s.URL(), Fallback: filepath.Join(dir, "fallback"),
		Node: "master-0", Namespaces: []string{"kube-system"},
	}, s}
}

func (p places) client(t *testing.T) *api.Client {
	t.Helper()
	c, err := api.New(p.Config)
	require.NoError(t, err)
	return c
}

// accepted tells which of the tokens the server is shown.
func (p places) accepted(t *testing.T, c *api.Client, token string) {
	t.Helper()
	p.server.AcceptToken(token)
	_, err := view(t, c)
	require.NoError(t, err)
}

func TestCredentialsAreChosenAnewAndInOrder(t *testing.T) {
	s := start(t)
	p := newPlaces(t, s)
	c := p.client(t)
	_, err := view(t, c)
	require.ErrorIs(t, err, api.ErrCredentials)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, p.ServiceAccount+"/token, "+p.Fallback+": name a kubeconfig with --kubeconfig, or ")

	s.WriteKubeconfig(p.Fallback, &clientcmdapi.AuthInfo{Token: "fallback"})
	p.accepted(t, c, "fallback")
	s.WriteServiceAccount(p.ServiceAccount, "account")
	p.accepted(t, c, "account")
	require.NoError(t, os.Remove(p.ServiceAccount+"/token"))
	p.accepted(t, c, "fallback")

	s.WriteServiceAccount(p.ServiceAccount, "account")
	p.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	c = p.client(t)
	_, err = view(t, c)
	require.ErrorContains(t, err, p.Kubeconfig+": write it, or correct --kubeconfig")
	s.WriteKubeconfig(p.Kubeconfig, &clientcmdapi.AuthInfo{Token: "named"})
	p.accepted(t, c, "named")
}

// What is there and broken hides nothing that is wrong with it.
func TestBrokenCredentialsDoNotFallThrough(t *testing.T) {
	s := start(t)
	s.AcceptToken("fallback")
	p := newPlaces(t, s)
	s.WriteKubeconfig(p.Fallback, &clientcmdapi.AuthInfo{Token: "fallback"})
	named := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(named, []byte("{"), 0o600))
	unread := func(says string) {
		t.Helper()
		_, err := view(t, p.client(t))
		require.ErrorIs(t, err, api.ErrCredentials)
		require.ErrorContains(t, err, says)
		require.Empty(t, s.Requests())
	}
	account := func(edit func()) {
		s.WriteServiceAccount(p.ServiceAccount, secretValue)
		edit()
	}
	of := "use credentials of service account " + p.ServiceAccount + ": "
	account(func() { require.NoError(t, os.WriteFile(p.ServiceAccount+"/token", nil, 0o600)) })
	unread(of + "token file " + p.ServiceAccount + "/token is empty")
	account(func() { require.NoError(t, os.Remove(p.ServiceAccount+"/ca.crt")) })
	unread(of + "open " + p.ServiceAccount + "/ca.crt: no such file")
	account(func() { require.NoError(t, os.WriteFile(p.ServiceAccount+"/ca.crt", []byte(secretValue), 0o600)) })
	unread(of)
	account(func() { p.Endpoint = "" })
	unread(of + "it does not say where the API server is: set --api-endpoint")
	account(func() { p.Endpoint = "https://%zz" })
	unread(of)
	p.Kubeconfig = named
	unread("use credentials of kubeconfig " + named)
}

func TestExpiredTokenIsNamed(t *testing.T) {
	s := start(t)
	p := newPlaces(t, s)
	c := p.client(t)
	claims := func(body string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(body)) + "." + secretValue
	}
	for token, says := range map[string]string{
		claims(`{"exp":1577934245}`):                                        ": the token expired at 2020-01-02T03:04:05Z",
		claims(`{"exp":1577934245.5}`):                                      ": the token expired at 2020-01-02T03:04:05Z",
		claims(fmt.Sprintf(`{"exp":%d}`, time.Now().Add(time.Hour).Unix())): p.ServiceAccount,
		claims(`{"exp":"` + secretValue + `"}`):                             p.ServiceAccount,
		claims(`{}`):                                                        p.ServiceAccount,
		"opaque." + secretValue:                                             p.ServiceAccount,
	} {
		s.WriteServiceAccount(p.ServiceAccount, token)
		_, err := view(t, c)
		require.ErrorIs(t, err, api.ErrUnauthorized)
		require.Regexp(t, says+"$", err.Error())
	}
}
