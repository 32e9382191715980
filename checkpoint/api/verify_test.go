package api_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api/apitest"
)

func TestVerifyProvesOnlyWhatACertificateProves(t *testing.T) {
	s, other := start(t), start(t)
	for what, tt := range map[string]struct {
		endpoint string
		ca       []byte
		hung     bool
		proof    bool
		says     string
	}{
		"good":         {endpoint: s.URL(), ca: s.CA()},
		"another name": {endpoint: strings.ReplaceAll(s.URL(), "127.0.0.1", "localhost"), ca: s.CA(), proof: true, says: "certificate not accepted: x509: "},
		"another CA":   {endpoint: s.URL(), ca: other.CA(), proof: true, says: "x509: certificate signed by unknown authority"},
		"no CA":        {endpoint: s.URL(), says: "no certificate to trust"},
		"no https":     {endpoint: "http://127.0.0.1:1", ca: s.CA(), says: "no https URL"},
		"nobody":       {endpoint: "https://127.0.0.1:1", ca: s.CA(), says: "connection refused"},
		"hung":         {endpoint: s.URL(), ca: s.CA(), hung: true, says: "deadline exceeded"},
	} {
		t.Run(what, func(t *testing.T) {
			if tt.hung {
				s.Hang()
				defer s.Continue()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			err := api.Verify(ctx, tt.endpoint, tt.ca)
			if tt.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.says)
			require.Equal(t, tt.proof, errors.Is(err, api.ErrCertificate))
		})
	}
	require.Empty(t, s.Requests(), "it asks for nothing")
	require.Eventually(t, func() bool { return s.Connections() == 0 }, 5*time.Second, time.Millisecond)
}

func TestAViewKnowsWhoseTokensAre(t *testing.T) {
	s := issuing(t)
	got, err := token(t, client(t, s.Kubeconfig()), asked)
	require.NoError(t, err)
	p := newPlaces(t, s)
	s.AcceptToken(got.Value)
	s.WriteServiceAccount(p.ServiceAccount, got.Value)
	s.Put(pod("kube-system", "p", "master-0"))
	ref := api.Ref{Kind: api.ServiceAccount, Namespace: "kube-system", Name: "pod-checkpointer"}
	gone := api.Ref{Kind: api.ServiceAccount, Namespace: "kube-system", Name: "gone"}
	v, err := p.client(t).View(t.Context(), func(*corev1.Pod) ([]api.Ref, bool) { return []api.Ref{ref, gone, ref}, true }, nil)
	require.NoError(t, err)
	require.Equal(t, []string{apitest.Audience}, v.Audiences)
	require.Len(t, v.Accounts, 1)
	require.EqualValues(t, api.ClaimsOf(got.Value).AccountUID, v.Accounts[ref])
	require.True(t, v.Missing[gone])
}
