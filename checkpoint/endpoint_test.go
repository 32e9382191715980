package checkpoint

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// Whoever mounts a token asks the API server at the endpoint, and trusts the CA that
// lies beside the token.
func TestTheEndpointsCertificateIsVerifiedWhereATokenIsMounted(t *testing.T) {
	inBubble(t, []string{""}, func(t *testing.T, n *tokenNode) {
		n.keep()
		trust := Trust{"https://10.0.0.1:6443", "the CA"}
		require.Equal(t, []Trust{trust}, n.errands().Trusts)
		for what, tt := range map[string]struct {
			said    said[string]
			finding bool
		}{
			"accepted":     {said[string]{}, false},
			"not accepted": {said[string]{value: "certificate not accepted: x509: it is for another name"}, true},
			"not known":    {said[string]{err: errors.New("connection refused")}, false},
			"not asked":    {said[string]{silent: true}, false},
		} {
			n.sources.certificates = map[Trust]said[string]{trust: tt.said}
			_, d := n.look()
			if !tt.finding {
				require.Empty(t, d.findings, what)
				continue
			}
			require.Equal(t, []string{"EndpointCertificate: a checkpoint's clients of the API server would not accept https://10.0.0.1:6443: certificate not accepted: x509: it is for another name; " +
				"give its certificate this address as a subject alternative name, or name one that it has with --api-endpoint"}, d.findings, what)
		}

		n.see(parent(t, "parent", withToken(""), func(pod *v1.Pod) {
			pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "localhost"}, {Name: "KUBERNETES_SERVICE_PORT", Value: "443"}}
		}))
		n.look()
		require.Equal(t, []Trust{{"https://localhost:443", "the CA"}}, n.errands().Trusts, "what its clients are told")

		n.see(parent(t, "parent"))
		n.look()
		require.Empty(t, n.errands(), "no token, no question")
	})
}
