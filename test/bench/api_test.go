//go:build e2e

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
)

// call sends in (nil: nothing) to the lab's API server and reads the answer into
// out (nil: not). A PATCH merges.
func call(ctx context.Context, l *lab.Lab, method, path string, in, out any) error {
	client, err := l.Admin()
	if err != nil {
		return err
	}
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, lab.APIURL+path, body)
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
	switch {
	case response.StatusCode >= 300:
		return fmt.Errorf("%s %s: %s", method, path, response.Status)
	case out == nil:
		return nil
	}
	return json.NewDecoder(response.Body).Decode(out)
}
