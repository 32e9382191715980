package checkpoint

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
)

// certificate is one that ends then, after a life of 100 days.
func certificate(t *testing.T, end time.Time, authority bool) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: end.Add(-100 * 24 * time.Hour), NotAfter: end,
		IsCA: authority, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestWhatEndsFirst(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	day := func(n int) time.Time { return now.Add(time.Duration(n) * 24 * time.Hour) }
	leaf := func(n int) []byte { return certificate(t, day(n), false) }
	ca := func(n int) []byte { return certificate(t, day(n), true) }
	join := func(all ...[]byte) (out []byte) {
		for _, one := range all {
			out = append(out, one...)
		}
		return out
	}
	kubeconfig := func(certificate []byte) []byte {
		return []byte("users:\n- name: u\n  user:\n    client-certificate-data: " + base64.StdEncoding.EncodeToString(certificate) + "\n    client-key-data: eA==\n")
	}
	for what, tt := range map[string]struct {
		data []byte
		end  time.Time // zero: nothing ends
	}{
		"certificate":            {leaf(10), day(10)},
		"chain":                  {join(leaf(30), ca(20)), day(20)},
		"key beside it":          {join([]byte("-----BEGIN PRIVATE KEY-----\neA==\n-----END PRIVATE KEY-----\n"), leaf(10)), day(10)},
		"bundle of authorities":  {join(ca(-10), ca(40), ca(30)), day(40)},
		"broken one beside it":   {join([]byte("-----BEGIN CERTIFICATE-----\neA==\n-----END CERTIFICATE-----\n"), leaf(10)), day(10)},
		"kubeconfig":             {kubeconfig(leaf(10)), day(10)},
		"kubeconfig in one line": {[]byte(`client-certificate-data: "!"`), time.Time{}},
		"no PEM":                 {[]byte("-----BEGIN CERTIFICATE-----"), time.Time{}},
		"empty":                  {nil, time.Time{}},
	} {
		var c contents
		c.read("certs/tls.crt", tt.data)
		if tt.end.IsZero() {
			require.Nil(t, c.certificate, what)
			continue
		}
		require.NotNil(t, c.certificate, what)
		require.Equal(t, "certs/tls.crt", c.certificate.File)
		require.True(t, tt.end.Equal(c.certificate.At), what)
	}

	var c contents
	c.read("a/tls.crt", leaf(30))
	c.read("b/tls.crt", leaf(20))
	c.read("c/tls.crt", leaf(40))
	require.Equal(t, "b/tls.crt", c.certificate.File)
}

func TestWhatIsAToken(t *testing.T) {
	token := (&authority{life: time.Hour, of: "node-uid"}).issue().Value
	for what, data := range map[string]string{
		"bare": token, "with a line feed": token + "\n", "in a kubeconfig": "users:\n- user:\n    token: \"" + token + "\"\n",
	} {
		require.Equal(t, []string{token}, tokensIn([]byte(data)), what)
	}
	for what, data := range map[string]string{"empty": "", "text": "a.b.c d", "two parts": "a.b", "opaque": "token: abcdef"} {
		require.Empty(t, tokensIn([]byte(data)), what)
	}
}

func TestCredentialsAreToldBeforeTheyEnd(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	soon := func(left, life time.Duration) contents {
		return contents{seq: 7, certificate: &Expiry{File: "certs/tls.crt", At: now.Add(left), life: life}}
	}
	const day = 24 * time.Hour
	require.Empty(t, contents{}.expiring(now))
	require.Empty(t, soon(7*day, year).expiring(now))
	require.Empty(t, soon(6*time.Minute, time.Hour).expiring(now), "of a short life the end is near later")
	require.Equal(t, []string{"CertificateExpires: the certificate in certs/tls.crt of generation 7 ends at 2026-01-01T00:01:00Z: renew it in the Secret or ConfigMap that it comes from"},
		soon(time.Minute, year).expiring(now))
	require.Equal(t, []string{"CertificateExpires: the certificate in certs/tls.crt of generation 7 has ended at 2025-12-31T23:59:00Z, and a checkpoint starts all the same: renew it in the Secret or ConfigMap that it comes from"},
		soon(-time.Minute, year).expiring(now))
	token := contents{seq: 7, token: &Expiry{File: "kube-api-access/token", At: now, life: time.Hour}}
	require.Contains(t, token.expiring(now)[0], "TokenExpires: the token in kube-api-access/token of generation 7 has ended at ")
}

// The start does not depend on it.
func TestStatusTellsWhatEndsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		certs := api.Ref{Kind: api.Secret, Namespace: "kube-system", Name: "certs"}
		end := time.Now().Add(24 * time.Hour)
		n.sources.api.value = &api.View{NodeUID: "node-uid",
			Pods:    []v1.Pod{*parent(t, "parent", withSecret)},
			Secrets: map[api.Ref]*v1.Secret{certs: {Data: map[string][]byte{"tls.crt": certificate(t, end, false)}}},
		}
		_, d := n.look()
		_, err := n.store.Commit(n.key, *d.draft)
		require.NoError(t, err)

		l := &Loop{observer: *n.observer}
		status := &Status{Workloads: []WorkloadStatus{{Workload: n.key.String()}}}
		l.tellExpiry(status)
		w := status.Workloads[0]
		require.Equal(t, "certs/tls.crt", w.Certificate.File)
		require.True(t, end.Equal(w.Certificate.At))
		require.Nil(t, w.Token)
		require.Len(t, w.Findings, 1)
		require.Contains(t, w.Findings[0], "CertificateExpires: ")
	})
}
