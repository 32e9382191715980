package api_test

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api/apitest"
)

const year = 365 * 24 * time.Hour

var asked = api.TokenRequest{
	ServiceAccount: types.NamespacedName{Namespace: "kube-system", Name: "pod-checkpointer"},
	Node:           "master-0", NodeUID: "node-uid", Lifetime: year,
}

func issuing(t *testing.T) *apitest.Server {
	t.Helper()
	s := start(t)
	s.Put(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "pod-checkpointer"}})
	return s
}

func token(t *testing.T, c *api.Client, r api.TokenRequest) (api.Token, error) {
	t.Helper()
	return tokenWithin(t, c, r, 10*time.Second)
}

func tokenWithin(t *testing.T, c *api.Client, r api.TokenRequest, d time.Duration) (api.Token, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	got, err := c.Token(ctx, r)
	if err != nil {
		assert.Zero(t, got)
		assert.NotContains(t, err.Error(), secretValue)
		assert.NotContains(t, err.Error(), "/api/")
	}
	return got, err
}

// A pod with a service account leaves a kubeconfig, with which a copy that has none goes on.
func TestTokenIsBoundToTheNodeAndLeavesAKubeconfig(t *testing.T) {
	s := issuing(t)
	p := newPlaces(t, s)
	s.WriteServiceAccount(p.ServiceAccount, apitest.Token)
	c := p.client(t)
	began := time.Now().Truncate(time.Second)
	got, err := token(t, c, asked)
	require.NoError(t, err)
	require.Equal(t, []string{"POST /api/v1/namespaces/kube-system/serviceaccounts/pod-checkpointer/token"}, s.Requests())
	assert.Equal(t, s.URL(), got.Endpoint)
	assert.WithinRange(t, got.Issued, began, time.Now())
	assert.Equal(t, year, got.Expires.Sub(got.Issued))
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(got.Value, ".")[1])
	require.NoError(t, err)
	assert.Contains(t, string(claims), `"node":{"name":"master-0","uid":"node-uid"}`)

	s.AcceptToken(got.Value)
	require.NoError(t, os.RemoveAll(p.ServiceAccount))
	require.NoError(t, os.WriteFile(p.Fallback, api.Kubeconfig(got), 0o600))
	_, err = view(t, c)
	require.NoError(t, err)

	// And a copy that has only that can renew it.
	again, err := token(t, c, asked)
	require.NoError(t, err)
	assert.Equal(t, got.CA, again.CA)
	assert.Equal(t, got.Endpoint, again.Endpoint)
}

func TestKubeconfigQuotesAndVerifies(t *testing.T) {
	s := issuing(t)
	c := client(t, s.Kubeconfig())
	good, err := token(t, c, asked)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	for what, tt := range map[string]struct {
		change func(*api.Token)
		err    error
	}{
		"odd token": {func(t *api.Token) { t.Value = "a: \"b\" \\ # 'c'" }, nil},
		"no CA":     {func(t *api.Token) { t.CA = nil }, api.ErrUnreachable}, // the system's do not know it
		"broken CA": {func(t *api.Token) { t.CA = []byte("x") }, api.ErrCredentials},
	} {
		changed := good
		tt.change(&changed)
		s.AcceptToken(changed.Value)
		require.NoError(t, os.WriteFile(path, api.Kubeconfig(changed), 0o600))
		_, err := view(t, client(t, path))
		require.ErrorIs(t, err, tt.err, what)
	}
}

func TestATokenIsForWhomItWasAsked(t *testing.T) {
	s := issuing(t)
	for audience, want := range map[string]string{"": apitest.Audience, "vault": "vault"} {
		r := asked
		r.Audience = audience
		got, err := token(t, client(t, s.Kubeconfig()), r)
		require.NoError(t, err)
		claims := api.ClaimsOf(got.Value)
		require.Equal(t, []string{want}, claims.Audiences)
		require.NotEmpty(t, claims.AccountUID)
		require.Equal(t, r.ServiceAccount, claims.Account)
	}
}

func TestExpiryIsTheEffectiveOne(t *testing.T) {
	const path = "/pod-checkpointer/token"
	s := issuing(t)
	c := client(t, s.Kubeconfig())
	s.LimitTokens(time.Hour)
	got, err := token(t, c, asked)
	require.NoError(t, err)
	assert.Equal(t, time.Hour, got.Expires.Sub(got.Issued), "the server gives less than asked")

	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	status := `"expirationTimestamp":"2030-01-02T03:04:05Z"`
	claims := func(body string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(body)) + ".x"
	}
	for value, expires := range map[string]time.Time{
		claims(`{"iat":1,"exp":1893560000}`): time.Unix(1893560000, 0),
		claims(`{"iat":1}`):                  at,
		"opaque":                             at,
	} {
		answer(path, `{"kind":"TokenRequest","status":{"token":"`+value+`",`+status+`}}`)(s)
		got, err := token(t, c, asked)
		require.NoError(t, err)
		assert.True(t, expires.Equal(got.Expires), "%s: %s", value, got.Expires)
		assert.False(t, got.Issued.IsZero())
	}
}

func TestTokenThatIsRefused(t *testing.T) {
	const path = "/token"
	for what, tt := range map[string]struct {
		breaks func(*apitest.Server)
		err    error
		says   string
	}{
		"no service account": {func(s *apitest.Server) {
			s.Delete(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "pod-checkpointer"}})
		}, nil, "create serviceaccounts/token pod-checkpointer in namespace kube-system: not found"},
		"another node": {func(s *apitest.Server) {
			n := node0()
			n.UID = "made anew"
			s.Put(n)
		}, api.ErrRefused, "does not match the UID in record"},
		"403":        {fail(path, 403), api.ErrForbidden, "a Role in namespace kube-system must allow verb create on resource serviceaccounts/token, resourceName pod-checkpointer"},
		"401":        {fail(path, 401), api.ErrUnauthorized, "those of kubeconfig "},
		"500":        {fail(path, 500), api.ErrServer, ""},
		"dead":       {(*apitest.Server).Kill, api.ErrUnreachable, ""},
		"login page": {answer(path, "<html>"+secretValue), api.ErrAnswer, ""},
		"no token":   {answer(path, `{"kind":"TokenRequest","status":{"expirationTimestamp":"2030-01-02T03:04:05Z"}}`), api.ErrAnswer, ""},
		"no end":     {answer(path, `{"kind":"TokenRequest","status":{"token":"`+secretValue+`"}}`), api.ErrAnswer, ""},
		"no kind":    {answer(path, `{"status":{"token":"`+secretValue+`","expirationTimestamp":"2030-01-02T03:04:05Z"}}`), api.ErrAnswer, ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := issuing(t)
			tt.breaks(s)
			_, err := token(t, client(t, s.Kubeconfig()), asked)
			require.ErrorContains(t, err, tt.says)
			if tt.err != nil {
				require.ErrorIs(t, err, tt.err)
			}
		})
	}
}

func TestTokenEndsWithTheDeadline(t *testing.T) {
	s := issuing(t)
	s.Hang()
	_, err := tokenWithin(t, client(t, s.Kubeconfig()), asked, 50*time.Millisecond)
	require.ErrorIs(t, err, api.ErrTimeout)
}
