package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
)

// ErrCertificate is the proof that a client which trusts certain authorities can't
// use an address.
var ErrCertificate = errors.New("certificate not accepted")

// Verify shakes hands with the API server at endpoint, an https URL, as a client
// does that trusts the authorities in ca, PEM, and nobody else. It asks for nothing
// and shows no credentials. An error that does not match [ErrCertificate] is no
// proof: nobody answered, or ca is no such thing.
func Verify(ctx context.Context, endpoint string, ca []byte) error {
	where, err := url.Parse(endpoint)
	if err != nil || where.Scheme != "https" {
		return fmt.Errorf("verify %q: it is no https URL", endpoint)
	}
	port := where.Port()
	if port == "" {
		port = "443"
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(ca) {
		return fmt.Errorf("verify %s: no certificate to trust", endpoint)
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(where.Hostname(), port))
	if err != nil {
		return fmt.Errorf("verify %s: %w", endpoint, err)
	}
	defer func() { _ = connection.Close() }()
	client := tls.Client(connection, &tls.Config{RootCAs: trusted, ServerName: where.Hostname()})
	err = client.HandshakeContext(ctx)
	if refused := (*tls.CertificateVerificationError)(nil); errors.As(err, &refused) {
		return fmt.Errorf("%w: %w", ErrCertificate, refused.Err)
	}
	if err != nil {
		return fmt.Errorf("verify %s: %w", endpoint, err)
	}
	return nil
}
