package apitest

import (
	"net/http"
	"slices"
	"strings"
)

// fault answers instead of the server.
type fault struct {
	path   string
	answer http.HandlerFunc
}

// AcceptToken makes token the only credential that is accepted.
func (s *Server) AcceptToken(token string) {
	s.Accept(func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer "+token })
}

// AcceptCertificate accepts client certificates of user and nothing else.
func (s *Server) AcceptCertificate(user string) {
	s.Accept(func(r *http.Request) bool {
		shown := r.TLS.PeerCertificates
		return len(shown) == 1 && shown[0].Subject.CommonName == user
	})
}

// Accept replaces the authentication: a request that judge does not pass gets a 401.
func (s *Server) Accept(judge func(*http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepts = judge
}

// Fail answers every request whose path contains part with an HTTP status, as
// a real API server words it: 401, 403, 404 (of the path, not of an object),
// 429, 5xx. A later fault counts before an earlier one.
func (s *Server) Fail(part string, code int) {
	s.Answer(part, func(w http.ResponseWriter, r *http.Request) { refuse(w, r, code) })
}

// Answer puts a handler before the server for every request whose path contains part.
func (s *Server) Answer(part string, with http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fault{part, with})
}

// Before has hook called before each request is answered. It may change what the
// server holds. nil: none.
func (s *Server) Before(hook func(*http.Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = hook
}

// Page cuts lists into pages of size, although nobody asked for a limit. 0: never.
func (s *Server) Page(size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pageSize = size
}

// Heal takes all faults away, and ends Hang.
func (s *Server) Heal() {
	s.mu.Lock()
	s.faults, s.pageSize = nil, 0
	s.mu.Unlock()
	s.Continue()
}

// Requests returns what was asked since it was last called, each as
// "GET /path?query", in order.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.requests
	s.requests = nil
	return asked
}

// begin notes a request and returns the fault that answers it, or nil.
func (s *Server) begin(r *http.Request) http.HandlerFunc {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil {
		before(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	for _, f := range slices.Backward(s.faults) {
		if strings.Contains(r.URL.Path, f.path) {
			return f.answer
		}
	}
	if !s.accepts(r) {
		return func(w http.ResponseWriter, r *http.Request) { refuse(w, r, http.StatusUnauthorized) }
	}
	return nil
}
