//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
	"k8s.io/client-go/rest"
)

// newClient is for the API server's /readyz, which anybody may ask.
func newClient(l *lab.Lab) (*http.Client, error) {
	config, err := l.RESTConfig()
	if err != nil {
		return nil, err
	}
	secure, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{DialContext: l.Dial, TLSClientConfig: secure, DisableKeepAlives: true}}, nil
}

// ask gets a page within 300 ms, into out where that is not nil.
func ask(ctx context.Context, client *http.Client, url string, out any) error {
	return askFor(ctx, 300*time.Millisecond, client, url, out)
}

// askFor is ask for a page that may take longer.
func askFor(ctx context.Context, limit time.Duration, client *http.Client, url string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode != http.StatusOK:
		return errors.New(response.Status)
	case out == nil:
		return nil
	}
	return json.NewDecoder(response.Body).Decode(out)
}
