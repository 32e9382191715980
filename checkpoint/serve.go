package checkpoint

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// passLimit is how old the last pass may be before the daemon is unhealthy.
const passLimit = 30 * time.Second

// Health is what one copy of the daemon is doing. The zero value is a copy that
// waits for its start. It may be used by several goroutines.
type Health struct{ doing atomic.Pointer[doing] }

// doing is one of three: to lead, to wait behind another copy, to lack something. A copy
// that waits may lack something besides.
type doing struct {
	status func() *Status // of a leader
	since  time.Time      // when it began to lead
	leader func() string  // of a copy that waits its turn: who leads
	lacks  string         // what it waits for, or did not find when it was its turn
}

// Leads says that this copy leads. status returns the newest Status, nil before
// the first pass.
func (h *Health) Leads(status func() *Status) {
	h.doing.Store(&doing{status: status, since: time.Now()})
}

// Follows says that this copy waits for its turn; leader tells who leads. lacked is what
// it needed and did not find when it had its turn last, "" if nothing.
func (h *Health) Follows(leader func() string, lacked string) {
	h.doing.Store(&doing{leader: leader, lacks: lacked})
}

// Lacks says what this copy needs and does not find.
func (h *Health) Lacks(what string) { h.doing.Store(&doing{lacks: what}) }

// status is that of the last pass; where there is none, waits tells for what this
// copy waits, and turn that it is for its turn alone.
func (h *Health) status() (s *Status, waits string, turn bool) {
	d := h.doing.Load()
	switch {
	case d == nil:
		return nil, "the start", false
	case d.leader != nil && d.lacks != "":
		return nil, d.leader() + ", and this copy could not: " + d.lacks, false
	case d.leader != nil:
		return nil, d.leader(), true
	case d.lacks != "":
		return nil, d.lacks, false
	}
	return d.status(), "the first pass", false
}

// stalled is for how long no pass has ended, 0 unless that is too long.
func (h *Health) stalled() time.Duration {
	d := h.doing.Load()
	if d == nil || d.status == nil {
		return 0
	}
	last := d.since
	if s := d.status(); s != nil {
		last = s.At
	}
	if age := time.Since(last); age > passLimit {
		return age
	}
	return 0
}

// Handler serves /status, /healthz and /readyz, all read-only.
//
// /healthz fails only where a restart may help: in a leader of which no pass has
// ended for 30 seconds. A source that is away is told in its body, line by line.
// A copy that waits for its turn is healthy and ready, and says who leads; it is not
// ready if it could not lead when it was its turn.
func (h *Health) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		s, waits, _ := h.status()
		if s == nil {
			http.Error(w, waits, http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		_ = out.Encode(s) // a client that is gone
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if age := h.stalled(); age > 0 {
			http.Error(w, fmt.Sprintf("no pass has ended for %s", age.Round(time.Second)), http.StatusServiceUnavailable)
			return
		}
		s, waits, _ := h.status()
		if s == nil {
			fmt.Fprintln(w, "waiting:", waits)
			return
		}
		fmt.Fprintln(w, strings.Join(append([]string{"ok"}, s.Troubles()...), "\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		s, waits, turn := h.status()
		switch {
		case s != nil:
			fmt.Fprintln(w, "ok")
		case turn:
			fmt.Fprintln(w, "waiting:", waits)
		default:
			http.Error(w, waits, http.StatusServiceUnavailable)
		}
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
