package probe

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		scheme, address string
		want            Target
		err             string
	}{
		{"https", "https://127.0.0.1:6443/readyz?verbose&exclude=etcd", Target{"https", "127.0.0.1:6443", "/readyz?verbose&exclude=etcd", nil}, ""},
		{"http", "http://localhost", Target{"http", "localhost:80", "/", nil}, ""},
		{"https", "https://[::1]/livez", Target{"https", "[::1]:443", "/livez", nil}, ""},
		{"tcp", "127.0.0.1:2379", Target{"tcp", "127.0.0.1:2379", "", nil}, ""},
		{"tcp", "[::1]:2379", Target{"tcp", "[::1]:2379", "", nil}, ""},
		{"http", "https://127.0.0.1/", Target{}, "must be http://host:port/path"},
		{"https", "127.0.0.1:6443", Target{}, "first path segment"},
		{"https", "https:///readyz", Target{}, "must be https://"},
		{"https", "https://user:secret@host/", Target{}, "must be https://"},
		{"tcp", "127.0.0.1", Target{}, "missing port"},
		{"tcp", ":2379", Target{}, "must be host:port"},
		{"tcp", "host:", Target{}, "must be host:port"},
		{"grpc", "127.0.0.1:1", Target{}, `"grpc" is none of http, https, tcp`},
	} {
		got, err := Parse(tt.scheme, tt.address)
		assert.Equal(t, tt.want, got, tt.address)
		if tt.err == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, tt.err)
		}
	}
}

// serve answers on the loopback; https says whether by TLS, with a certificate
// that nobody trusts.
func serve(t *testing.T, https bool, answer http.HandlerFunc) Target {
	t.Helper()
	server := httptest.NewUnstartedServer(answer)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	scheme := "http"
	if https {
		scheme = "https"
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	target, err := Parse(scheme, server.URL+"/readyz?verbose")
	require.NoError(t, err)
	return target
}

func TestStatusFrom200To399Passes(t *testing.T) {
	for status, passes := range map[int]bool{200: true, 204: true, 304: true, 399: true, 400: false, 401: false, 500: false, 503: false} {
		for _, https := range []bool{false, true} {
			err := serve(t, https, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }).Ask(t.Context())
			if passes {
				assert.NoError(t, err, "%d", status)
			} else {
				assert.ErrorContains(t, err, "/readyz?verbose: status ", "%d", status)
			}
		}
	}
}

// What is wrong with an API server is worth more than its status.
func TestFailedChecksAreNamed(t *testing.T) {
	for body, want := range map[string]string{
		"[+]ping ok\n[-]etcd failed: reason withheld\n[-]informer-sync failed: reason withheld\nreadyz check failed\n": "status 500: [-]etcd failed: reason withheld, [-]informer-sync failed: reason withheld",
		"[-]" + strings.Repeat("x", 100):             "status 500",
		strings.Repeat("[-]x\n", 9):                  "status 500: [-]x, [-]x, [-]x, [-]x, [-]x",
		"it says [-]etcd failed, but not as a check": "status 500",
	} {
		err := serve(t, true, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, body, http.StatusInternalServerError) }).Ask(t.Context())
		_, got, _ := strings.Cut(err.Error(), "verbose: ")
		assert.Equal(t, want, got)
	}
}

func TestQuestionIsTheKubelets(t *testing.T) {
	var got *http.Request
	for _, https := range []bool{false, true} {
		target := serve(t, https, func(_ http.ResponseWriter, r *http.Request) { got = r })
		require.NoError(t, target.Ask(t.Context()))
		assert.Equal(t, "GET", got.Method)
		assert.Equal(t, "/readyz?verbose", got.RequestURI)
		assert.Equal(t, target.Host, got.Host)
		assert.Equal(t, "*/*", got.Header.Get("Accept"))
		assert.Equal(t, "kube-probe/1.37", got.Header.Get("User-Agent"))
		assert.Empty(t, got.Header.Values("Accept-Encoding"))
		if https {
			assert.Equal(t, 2, got.ProtoMajor, "as the kubelet negotiates")
		} else {
			assert.True(t, got.Close, "no connection is kept")
		}
	}
}

func TestHeadersOfTheProbe(t *testing.T) {
	var got *http.Request
	target := serve(t, false, func(_ http.ResponseWriter, r *http.Request) { got = r })
	target.Header = http.Header{"Host": {"api.example"}, "Accept": {""}, "User-Agent": {"me"}, "X-Two": {"1", "2"}}
	require.NoError(t, target.Ask(t.Context()))
	assert.Equal(t, "api.example", got.Host)
	assert.NotContains(t, got.Header, "Accept")
	assert.Equal(t, "me", got.Header.Get("User-Agent"))
	assert.Equal(t, []string{"1", "2"}, got.Header["X-Two"])
	assert.Equal(t, http.Header{"Host": {"api.example"}, "Accept": {""}, "User-Agent": {"me"}, "X-Two": {"1", "2"}}, target.Header, "is left as it was")
}

func TestRedirects(t *testing.T) {
	hops := 0
	handler := func(w http.ResponseWriter, r *http.Request) {
		hops++
		switch r.URL.Path {
		case "/readyz":
			http.Redirect(w, r, r.Header.Get("To"), http.StatusFound)
		case "/failing":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	target := serve(t, false, handler)
	for _, tt := range []struct {
		to, err string
		hops    int
	}{
		{"/fine", "", 2},
		{"/failing", "/failing: status 503", 2},
		{"http://192.0.2.1/elsewhere", "", 1}, // an answer, and nobody else is asked
		{"/readyz", "stopped after 10 redirects", 10},
	} {
		hops = 0
		target.Header = http.Header{"To": {tt.to}}
		err := target.Ask(t.Context())
		if tt.err == "" {
			assert.NoError(t, err, tt.to)
		} else {
			assert.ErrorContains(t, err, tt.err)
		}
		assert.Equal(t, tt.hops, hops, tt.to)
	}
}

func TestLongBodyIsNotReadToItsEnd(t *testing.T) {
	done := make(chan struct{})
	target := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		for {
			if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil {
				return
			}
		}
	})
	require.NoError(t, target.Ask(t.Context()))
	<-done
}

func TestAnswerThatBreaksOffFails(t *testing.T) {
	target := serve(t, false, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "short")
	})
	require.ErrorContains(t, target.Ask(t.Context()), "read answer: unexpected EOF")
}

func TestDeadline(t *testing.T) {
	asked := make(chan struct{})
	release := make(chan struct{})
	target := serve(t, false, func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-release
	})
	t.Cleanup(func() { close(release) })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	require.ErrorIs(t, target.Ask(ctx), context.Canceled)
}

func TestConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	for _, scheme := range []string{"tcp", "http"} {
		target := Target{Scheme: scheme, Host: listener.Addr().String()}
		if scheme == "tcp" {
			require.NoError(t, target.Ask(t.Context()))
			require.NoError(t, listener.Close())
		}
		require.ErrorContains(t, target.Ask(t.Context()), "connection refused")
	}
}
