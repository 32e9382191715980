package api

import (
	"context"
	"fmt"
	"net"
	"net/http"

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

// server is an API server during one View.
type server struct {
	*rest.RESTClient
	config *rest.Config
	from   string // where config is from, in the words of an error
}

// connect reads the credentials. Connections are opened when first needed and
// closed when ctx ends.
func (c *Client) connect(ctx context.Context) (*server, error) {
	config, from, err := c.config.credentials()
	if err != nil {
		return nil, err
	}
	s := &server{config: config, from: from}
	transport, err := newTransport(ctx, config)
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

// newTransport speaks HTTP/1.1 with no proxy but a kubeconfig's. net/http
// goes on dialing and shaking hands when the request that wanted the
// connection has ended; here all of it ends with ctx.
func newTransport(ctx context.Context, config *rest.Config) (*http.Transport, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	var http1 http.Protocols
	http1.SetHTTP1(true)
	return &http.Transport{
		Protocols:          &http1,
		Proxy:              config.Proxy,
		TLSClientConfig:    tlsConfig,
		DisableCompression: true,
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			connection, err := new(net.Dialer).DialContext(ctx, network, address)
			if err == nil {
				context.AfterFunc(ctx, func() { _ = connection.Close() })
			}
			return connection, err
		},
	}, nil
}
