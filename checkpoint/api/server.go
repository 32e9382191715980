package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
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
	host            string // as the kubeconfig writes it
	kubeconfig      string
	certificateEnds time.Time // of the client certificate; zero: none
}

// connect reads the kubeconfig and the files that it names. Connections are
// opened when first needed and closed when ctx ends.
func (c *Client) connect(ctx context.Context) (*server, error) {
	config, err := load(c.config.Kubeconfig)
	if err != nil {
		return nil, err
	}
	s := &server{host: config.Host, kubeconfig: c.config.Kubeconfig}
	transport, err := newTransport(ctx, config)
	if err != nil {
		return nil, err
	}
	if pair, err := tls.X509KeyPair(config.CertData, config.KeyData); err == nil {
		s.certificateEnds = pair.Leaf.NotAfter
	}
	authenticated, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, err
	}
	s.RESTClient, err = rest.RESTClientForConfigAndClient(config, &http.Client{
		Transport: authenticated,
		// An API server does not redirect, and the token would go to wherever this one points.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
	return s, err
}

// load returns the current context of the kubeconfig at path with the contents
// of every file that it names, and settings for a client that asks once: no
// limiter and no other than core/v1.
func load(path string) (*rest.Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Unwrap(err) // the caller names the path
	}
	file, err := clientcmd.Load(data)
	if err != nil {
		return nil, err
	}
	for _, cluster := range file.Clusters {
		cluster.LocationOfOrigin = path
	}
	for _, user := range file.AuthInfos {
		user.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, err
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*file, file.CurrentContext, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("it names no cluster")
	case err != nil:
		return nil, err
	case config.ExecProvider != nil || config.AuthProvider != nil:
		return nil, errors.New("it gets credentials from a plugin: give it a client certificate or a token")
	}
	if err := loadCredentials(config); err != nil {
		return nil, err
	}
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = codecs
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.UserAgent = "pod-checkpointer"
	config.QPS = -1
	return config, nil
}

// loadCredentials reads the files that config names now, since client-go would
// do so on a clock of its own: a token counts up to a minute after its file has
// a new one.
func loadCredentials(config *rest.Config) error {
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	if config.BearerTokenFile == "" {
		return nil
	}
	token, err := os.ReadFile(config.BearerTokenFile)
	if err != nil {
		return err
	}
	if token = bytes.TrimSpace(token); len(token) == 0 {
		return fmt.Errorf("token file %s is empty", config.BearerTokenFile)
	}
	config.BearerToken, config.BearerTokenFile = string(token), ""
	return nil
}

// newTransport speaks HTTP/1.1 with no proxy but the kubeconfig's. net/http
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
