package api

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// source is one place for credentials.
type source struct {
	what string // in the words of an error
	path string // the source counts when this is there
	load func() (*rest.Config, error)
}

func (c Config) sources() []source {
	if c.Kubeconfig != "" {
		return []source{kubeconfigAt(c.Kubeconfig)}
	}
	var all []source
	if dir := c.ServiceAccount; dir != "" {
		all = append(all, source{"service account " + dir, filepath.Join(dir, "token"), func() (*rest.Config, error) {
			return serviceAccount(dir, c.Endpoint)
		}})
	}
	if c.Fallback != "" {
		all = append(all, kubeconfigAt(c.Fallback))
	}
	return all
}

func kubeconfigAt(path string) source {
	return source{"kubeconfig " + path, path, func() (*rest.Config, error) { return load(path) }}
}

// credentials reads the first source that is there, and the files that it
// names. One that is there and broken is an error: the next could be of an
// older cluster, and nobody would look for what is wrong with the first.
func (c Config) credentials() (config *rest.Config, from string, err error) {
	var absent []string
	for _, s := range c.sources() {
		if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
			absent = append(absent, s.path)
			continue
		}
		config, err := s.load()
		if err == nil {
			err = complete(config)
		}
		if err != nil {
			return nil, "", fmt.Errorf("%w of %s: %w", ErrCredentials, s.what, err)
		}
		return config, s.what, nil
	}
	remedy := "name a kubeconfig with --kubeconfig, or let the DaemonSet's pod run here once, which leaves one"
	if c.Kubeconfig != "" {
		remedy = "write it, or correct --kubeconfig"
	}
	return nil, "", fmt.Errorf("%w: %w: %s: %s", ErrCredentials, fs.ErrNotExist, strings.Join(absent, ", "), remedy)
}

// load returns the current context of the kubeconfig at path.
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
	return config, nil
}

// serviceAccount reads what the kubelet mounts in a pod (kubernetes v1.37,
// plugin/pkg/admission/serviceaccount, TokenVolumeSource).
func serviceAccount(dir, endpoint string) (*rest.Config, error) {
	if endpoint == "" {
		return nil, errors.New("it does not say where the API server is: set --api-endpoint")
	}
	return &rest.Config{
		Host:            endpoint,
		BearerTokenFile: filepath.Join(dir, "token"),
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "ca.crt")},
	}, nil
}

// complete reads the files that config names now, since client-go would do so
// on a clock of its own: a token counts up to a minute after its file has a new
// one. It sets what a client needs that asks once: no limiter, and no other
// group than core/v1.
func complete(config *rest.Config) error {
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	if config.BearerTokenFile != "" {
		token, err := os.ReadFile(config.BearerTokenFile)
		if err != nil {
			return err
		}
		if token = bytes.TrimSpace(token); len(token) == 0 {
			return fmt.Errorf("token file %s is empty", config.BearerTokenFile)
		}
		config.BearerToken, config.BearerTokenFile = string(token), ""
	}
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = codecs
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.UserAgent = "pod-checkpointer"
	config.QPS = -1
	return nil
}

// expiry tells when the credentials in config end, and which of them do first;
// zero where nothing says so.
func expiry(config *rest.Config) (what string, at time.Time) {
	if pair, err := tls.X509KeyPair(config.CertData, config.KeyData); err == nil {
		what, at = "client certificate", pair.Leaf.NotAfter
	}
	if _, token := lifetime(config.BearerToken); !token.IsZero() && (at.IsZero() || token.Before(at)) {
		what, at = "token", token
	}
	return what, at
}

// lifetime reads from a JSON web token when it was issued and until when the
// API server accepts it; zero for what it does not say. It checks no signature.
func lifetime(token string) (issued, expires time.Time) {
	var claims struct {
		Issued  float64 `json:"iat"`
		Expires float64 `json:"exp"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return issued, expires
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return issued, expires
	}
	// Seconds since the epoch, not always whole ones (RFC 7519, NumericDate).
	at := func(seconds float64) (t time.Time) {
		if seconds > 0 {
			t = time.Unix(int64(seconds), 0)
		}
		return t
	}
	return at(claims.Issued), at(claims.Expires)
}
