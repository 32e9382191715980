package apitest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority signs the server's certificate and those of its clients.
type authority struct {
	certificate []byte // PEM
	parsed      *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	template := template("apitest", time.Now().Add(time.Hour))
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return authority{encode("CERTIFICATE", der), parsed, key}
}

// CA is the authority of the server's certificate, PEM.
func (s *Server) CA() []byte { return s.authority.certificate }

// ClientCertificate returns a client certificate and its key, PEM, for user.
func (s *Server) ClientCertificate(user string, expires time.Time) (certificate, key []byte) {
	s.t.Helper()
	return s.authority.sign(s.t, template(user, expires))
}

// serverConfig asks for a client certificate and, as kube-apiserver does,
// leaves it to the authentication of each request to judge it.
func (a authority) serverConfig(t testing.TB) *tls.Config {
	t.Helper()
	template := template("kube-apiserver", time.Now().Add(time.Hour))
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	pair, err := tls.X509KeyPair(a.sign(t, template))
	require.NoError(t, err)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}}
}

func (a authority) sign(t testing.TB, template *x509.Certificate) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, a.parsed, private.Public(), a.key)
	require.NoError(t, err)
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", privateDER)
}

func template(name string, expires time.Time) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    expires.Add(-24 * time.Hour),
		NotAfter:     expires,
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
