package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
)

// codecs knows core/v1 alone: client-go's own scheme, with every API group,
// weighs more than this whole package.
var codecs = func() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}()

// server is an API server during one View or Await.
type server struct {
	*rest.RESTClient
	config *rest.Config
	from   string // where config is from, in the words of an error
}

// connect reads the credentials. Connections are opened when first needed and
// closed when ctx ends.
func (c *Client) connect(ctx context.Context, via func(context.Context, *rest.Config) (*http.Transport, error)) (*server, error) {
	config, from, err := c.config.credentials()
	if err != nil {
		return nil, err
	}
	s := &server{config: config, from: from}
	transport, err := via(ctx, config)
	if err == nil {
		err = s.client(transport)
	}
	if err != nil {
		return nil, fmt.Errorf("%w of %s: %w", ErrCredentials, from, err)
	}
	return s, nil
}

func (s *server) client(transport http.RoundTripper) error {
	authenticated, err := rest.HTTPWrappersForConfig(s.config, transport)
	if err != nil {
		return err
	}
	s.RESTClient, err = rest.RESTClientForConfigAndClient(s.config, &http.Client{
		Transport: authenticated,
		// An API server does not redirect, and the token would go to wherever this one points.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
	return err
}

// newTransport speaks HTTP/1.1.
func newTransport(ctx context.Context, config *rest.Config) (*http.Transport, error) {
	t, err := dialing(ctx, config, 0)
	if err == nil {
		t.Protocols.SetHTTP1(true)
	}
	return t, err
}

// dialing makes a transport that speaks no protocol yet, with no proxy but a
// kubeconfig's. net/http goes on dialing and shaking hands when the request that
// wanted the connection has ended; here all of it ends with ctx, and each of the
// two after timeout, if that is not 0.
func dialing(ctx context.Context, config *rest.Config, timeout time.Duration) (*http.Transport, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	return &http.Transport{
		Protocols:           new(http.Protocols),
		Proxy:               config.Proxy,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: timeout,
		DisableCompression:  true,
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			connection, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, network, address)
			if err == nil {
				context.AfterFunc(ctx, func() { _ = connection.Close() })
			}
			return connection, err
		},
	}, nil
}
