package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// RESTConfig is the cluster's administrator, for clients out here: they dial
// inside of the node's network, with and without power.
func (l *Lab) RESTConfig() (*rest.Config, error) {
	data, err := os.ReadFile(filepath.Join(l.diskDir(), "/etc/kubernetes/admin.conf"))
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		return nil, fmt.Errorf("read admin.conf: %w", err)
	}
	config.Dial = l.Dial
	return config, nil
}

// Admin is an HTTP client for the API server at APIURL, as its administrator.
// It is the same one at each call.
func (l *Lab) Admin() (*http.Client, error) { return l.admin() }

func (l *Lab) newAdmin() (*http.Client, error) {
	config, err := l.RESTConfig()
	if err != nil {
		return nil, err
	}
	return rest.HTTPClientFor(config)
}

// APIURL is where the API server is on the node.
const APIURL = apiURL

// Ready is nil if the API server says that it is ready.
func (l *Lab) Ready(ctx context.Context) error {
	client, err := l.Admin()
	if err != nil {
		return err
	}
	return call(ctx, client, http.MethodGet, apiURL+"/readyz", nil, nil)
}

// AwaitReady waits for the API server, as long as ctx allows.
func (l *Lab) AwaitReady(ctx context.Context) error {
	client, err := l.Admin()
	if err != nil {
		return err
	}
	return poll(ctx, 20*time.Millisecond, func() error {
		return call(ctx, client, http.MethodGet, apiURL+"/readyz", nil, nil)
	})
}

// Call sends in (nil: nothing) to the API server, as its administrator, and reads the
// answer into out (nil: not). A PATCH merges. An answer that is no success is a
// *StatusError.
func (l *Lab) Call(ctx context.Context, method, path string, in, out any) error {
	client, err := l.Admin()
	if err != nil {
		return err
	}
	return call(ctx, client, method, apiURL+path, in, out)
}

// StatusError is an answer that is no success.
type StatusError struct {
	Code int    // of HTTP
	text string // its beginning
}

func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Code, e.text) }

// call sends in (nil: nothing) as JSON and reads the answer into out (nil: not).
func call(ctx context.Context, client *http.Client, method, url string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.StatusCode >= 300:
		return fmt.Errorf("%s %s: %w", method, url, &StatusError{response.StatusCode, tail(string(data), 500)})
	case out != nil:
		return json.Unmarshal(data, out)
	}
	return nil
}

// collection is the path of a kind's objects; namespace is empty for those of
// the whole cluster. The plural of every kind that the lab makes is regular.
func collection(kind schema.GroupVersionKind, namespace string) string {
	path := "/apis/" + kind.GroupVersion().String()
	if kind.Group == "" {
		path = "/api/" + kind.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + strings.ToLower(kind.Kind) + "s"
}
