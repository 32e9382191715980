package checkpoint

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// ask puts one request to a Handler.
func ask(h http.Handler, method, path string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(method, path, nil))
	return answer
}

func serving(s *Status) http.Handler {
	var h Health
	h.Leads(func() *Status { return s })
	return h.Handler()
}

func TestWhatACopyLacksIsSaidAndNoReasonToRestart(t *testing.T) {
	var health Health
	h := health.Handler()
	require.Equal(t, "waiting: the start\n", ask(h, "GET", "/healthz").Body.String())
	health.Lacks("open --state-dir: read-only file system")
	for path, code := range map[string]int{"/healthz": 200, "/readyz": 503, "/status": 503} {
		answer := ask(h, "GET", path)
		require.Equal(t, code, answer.Code, path)
		require.Contains(t, answer.Body.String(), "read-only file system", path)
	}
}

// A copy that waits for its turn is all right: there is nothing that it should do.
func TestACopyThatWaitsIsReadyAndSaysWhoLeads(t *testing.T) {
	var health Health
	leader := "process 7 leads"
	health.Follows(func() string { return leader }, "")
	h := health.Handler()
	leader = "process 8 leads"
	for path, code := range map[string]int{"/healthz": 200, "/readyz": 200, "/status": 503} {
		answer := ask(h, "GET", path)
		require.Equal(t, code, answer.Code, path)
		require.Contains(t, answer.Body.String(), "process 8 leads", path)
	}
}

// It would look as well as one that could take over.
func TestACopyThatWaitsSaysWhatItLacked(t *testing.T) {
	var health Health
	health.Follows(func() string { return "process 7 leads" }, "open --state-dir: input/output error")
	h := health.Handler()
	for path, code := range map[string]int{"/healthz": 200, "/readyz": 503, "/status": 503} {
		answer := ask(h, "GET", path)
		require.Equal(t, code, answer.Code, path)
		require.Contains(t, answer.Body.String(), "process 7 leads, and this copy could not: open --state-dir: input/output error", path)
	}
}

func TestBeforeTheFirstPassItIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serving(nil)
		for path, code := range map[string]int{"/healthz": 200, "/readyz": 503, "/status": 503} {
			answer := ask(h, "GET", path)
			require.Equal(t, code, answer.Code, path)
			require.Contains(t, answer.Body.String(), "the first pass", path)
		}
		time.Sleep(passLimit + time.Second)
		require.Equal(t, "no pass has ended for 31s\n", ask(h, "GET", "/healthz").Body.String())
	})
}

func TestHealthzFailsOnlyWhenNoPassEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serving(&Status{At: time.Now()})
		time.Sleep(passLimit)
		answer := ask(h, "GET", "/healthz")
		require.Equal(t, 200, answer.Code)
		require.Equal(t, "ok\n", answer.Body.String())
		time.Sleep(time.Second)
		answer = ask(h, "GET", "/healthz")
		require.Equal(t, 503, answer.Code)
		require.Equal(t, "no pass has ended for 31s\n", answer.Body.String())
	})
}

func TestHealthzNamesTroublesAndStaysHealthy(t *testing.T) {
	answer := ask(serving(&Status{
		At:      time.Now(),
		Sources: []SourceStatus{{Name: "runtime", Why: "cri: no runtime.v1"}, {Name: "kubelet", Known: true}},
		Workloads: []WorkloadStatus{
			{Workload: "kube-system/etcd", State: Protected},
			{Workload: "kube-system/kube-apiserver", State: Failing, Why: "holder=none exits=3", Error: "no space left on device"},
			{Workload: "kube-system/proxy", State: Activating, Frozen: []string{"lock"}, Why: "serves=unknown"},
			{Workload: "kube-system/scheduler", State: Protected, Error: "write manifest: read-only file system", Findings: []string{"UnsafeReadiness: no probe"}},
		},
		Problems: []string{"/etc/kubernetes/manifests/x: not a pod"},
	}), "GET", "/healthz")
	require.Equal(t, 200, answer.Code, "a restart would help none of this")
	require.Equal(t, []string{
		"ok",
		"runtime unknown: cri: no runtime.v1",
		"kube-system/kube-apiserver Failing: holder=none exits=3",
		"kube-system/kube-apiserver: no space left on device",
		"kube-system/proxy Activating waits for lock: serves=unknown",
		"kube-system/scheduler: write manifest: read-only file system",
		"kube-system/scheduler: UnsafeReadiness: no probe",
		"/etc/kubernetes/manifests/x: not a pod",
	}, strings.Split(strings.TrimSpace(answer.Body.String()), "\n"))
}

func TestStatusIsWhatTheLastPassSaw(t *testing.T) {
	status := &Status{
		Node: "master-1", Boot: "b", At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Sources:   []SourceStatus{{Name: "api", Why: "refused"}},
		Workloads: []WorkloadStatus{{Workload: "kube-system/kube-apiserver", State: Serving, For: "3s", Frozen: []string{"api"}}},
	}
	answer := ask(serving(status), "GET", "/status")
	require.Equal(t, 200, answer.Code)
	require.Equal(t, "application/json", answer.Header().Get("Content-Type"))
	var got Status
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &got))
	require.Equal(t, *status, got)
	require.Equal(t, 200, ask(serving(status), "GET", "/readyz").Code)
}

func TestNothingCanBeChangedOverHTTP(t *testing.T) {
	for _, path := range []string{"/status", "/healthz", "/readyz"} {
		require.Equal(t, http.StatusMethodNotAllowed, ask(serving(&Status{At: time.Now()}), "POST", path).Code, path)
	}
	require.Equal(t, http.StatusNotFound, ask(serving(&Status{}), "GET", "/").Code)
}
