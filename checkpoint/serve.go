package checkpoint

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// passLimit is how old the last pass may be before the daemon is unhealthy.
const passLimit = 30 * time.Second

// Handler serves /status, /healthz and /readyz, all read-only. status returns
// the newest Status, nil before the first pass; waits says what the daemon
// waits for until then.
//
// /healthz fails only where a restart may help: when no pass has ended for 30
// seconds. A source that is away is told in its body, line by line.
func Handler(status func() *Status, waits func() string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		s := status()
		if s == nil {
			http.Error(w, waits(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		_ = out.Encode(s) // a client that is gone
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		s := status()
		if s == nil {
			fmt.Fprintln(w, "waiting:", waits())
			return
		}
		if age := time.Since(s.At); age > passLimit {
			http.Error(w, fmt.Sprintf("no pass has ended for %s", age.Round(time.Second)), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, strings.Join(append([]string{"ok"}, s.Troubles()...), "\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if status() == nil {
			http.Error(w, waits(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// Troubles are the lines that an operator should read, none if all is well.
func (s *Status) Troubles() []string {
	var out []string
	for _, source := range s.Sources {
		if !source.Known {
			out = append(out, source.Name+" unknown: "+source.Why)
		}
	}
	for _, w := range s.Workloads {
		switch w.State {
		case Stuck, Unprotectable, Failing, Pending, RollingBack:
			out = append(out, fmt.Sprintf("%s %s: %s", w.Workload, w.State, w.Why))
		case Unprotected, Protected, Activating, Serving, HandingOff:
			if len(w.Frozen) > 0 {
				out = append(out, fmt.Sprintf("%s %s waits for %s: %s", w.Workload, w.State, strings.Join(w.Frozen, ", "), w.Why))
			}
		}
		if w.Error != "" {
			out = append(out, w.Workload+": "+w.Error)
		}
		for _, finding := range w.Findings {
			out = append(out, w.Workload+": "+finding)
		}
	}
	return append(out, s.Problems...)
}
