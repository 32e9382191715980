//go:build e2e

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
)

const apiServer = "kube-system/kube-apiserver"

// controlPlane are the workloads that a lab protects.
var controlPlane = []string{apiServer, "kube-system/kube-controller-manager", "kube-system/kube-scheduler"}

// statusOf is what the leading daemon says.
func statusOf(ctx context.Context, l *lab.Lab) (status checkpoint.Status, err error) {
	client := &http.Client{Transport: &http.Transport{DialContext: l.Dial, DisableKeepAlives: true}, Timeout: time.Second}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10299/status", nil)
	if err != nil {
		return status, err
	}
	response, err := client.Do(request)
	if err != nil {
		return status, err
	}
	defer response.Body.Close()
	return status, json.NewDecoder(response.Body).Decode(&status)
}

// told waits until the daemon says, of a pass that began after that time, what
// is waited for.
func told(ctx context.Context, l *lab.Lab, after time.Time, what string, done func(checkpoint.Status) bool) error {
	last := "no answer"
	err := awaitEvery(ctx, 100*time.Millisecond, patience, what, func() bool {
		status, err := statusOf(ctx, l)
		if err != nil {
			last = err.Error()
			return false
		}
		last = fmt.Sprintf("%+v %q", status.Workloads, status.Problems)
		return status.At.After(after) && done(status)
	})
	if err != nil {
		return fmt.Errorf("%w (last: %s)", err, last)
	}
	return nil
}

// protected waits until the daemon says that these parents serve and are saved.
func protected(ctx context.Context, l *lab.Lab, after time.Time, workloads ...string) error {
	return told(ctx, l, after, strings.Join(workloads, ", ")+" protected", func(s checkpoint.Status) bool {
		return all(s, workloads, func(w checkpoint.WorkloadStatus) bool {
			return w.State == checkpoint.Protected && w.Generation > 0 && w.Activation == ""
		})
	})
}

// all tells whether the status has each of these workloads, and it is so.
func all(s checkpoint.Status, workloads []string, so func(checkpoint.WorkloadStatus) bool) bool {
	return !slices.ContainsFunc(workloads, func(name string) bool {
		return !slices.ContainsFunc(s.Workloads, func(w checkpoint.WorkloadStatus) bool { return w.Workload == name && so(w) })
	})
}
