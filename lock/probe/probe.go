// Package probe asks a program whether it is well, as the kubelet would
// (pkg/probe of k8s.io/kubernetes v1.37.2, which can't be imported).
package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
)

// Target is what a probe asks.
type Target struct {
	Scheme string      // "http", "https" or "tcp"
	Host   string      // host:port
	Path   string      // of http and https, with the query; "" is "/"
	Header http.Header // of http and https; "Host" is honoured
}

// Parse reads a target from its scheme and its address, which is a URL for
// "http" and "https" and host:port for "tcp".
func Parse(scheme, address string) (Target, error) {
	t := Target{Scheme: scheme, Host: address}
	switch scheme {
	case "http", "https":
		u, err := url.Parse(address)
		if err != nil {
			return Target{}, fmt.Errorf("probe target %q: %w", address, err)
		}
		if u.Scheme != scheme || u.Hostname() == "" || u.User != nil {
			return Target{}, fmt.Errorf("probe target %q: must be %s://host:port/path", address, scheme)
		}
		t.Host, t.Path = u.Host, u.RequestURI()
		if u.Port() == "" {
			t.Host = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[scheme])
		}
	case "tcp":
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return Target{}, fmt.Errorf("probe target: %w", err)
		}
		if host == "" || port == "" {
			return Target{}, fmt.Errorf("probe target %q: must be host:port", address)
		}
	default:
		return Target{}, fmt.Errorf("probe target: scheme %q is none of http, https, tcp", scheme)
	}
	return t, nil
}

// Ask returns nil if the program answers well: a connection for tcp, else a
// status from 200 to 399, after redirects on the same host name; one that leads
// elsewhere counts as an answer and is not followed. A certificate is not
// verified, and no proxy, kept connection or cookie is used. The caller sets
// the deadline by ctx.
func (t Target) Ask(ctx context.Context) error {
	if t.Scheme == "tcp" {
		conn, err := dialer().DialContext(ctx, "tcp", t.Host)
		if err != nil {
			return fmt.Errorf("probe tcp %s: %w", t.Host, err)
		}
		_ = conn.Close() // the answer was the connection
		return nil
	}
	return t.get(ctx)
}

// tlsConfig verifies nothing: nobody has told the CA of a pod to the kubelet either. So
// there is no secret to be kept from later computers, and no key exchange that costs more
// for it.
var tlsConfig = &tls.Config{InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}}

func (t Target) get(ctx context.Context) error {
	req, err := t.request(ctx)
	if err != nil {
		return err
	}
	transport := &http.Transport{
		DialContext:        dialer().DialContext,
		TLSClientConfig:    tlsConfig,
		DisableKeepAlives:  true,
		DisableCompression: true,
		ForceAttemptHTTP2:  true, // else a DialContext of its own ends it
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: sameHost}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("probe: %w", err) // names method and URL
	}
	defer res.Body.Close()
	// As much of the body as the kubelet reads: an answer that breaks off is none.
	body, err := io.ReadAll(io.LimitReader(res.Body, 10<<10))
	if err != nil {
		return fmt.Errorf("probe %s: read answer: %w", res.Request.URL, err)
	}
	if res.StatusCode < http.StatusOK || res.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("probe %s: status %d%s", res.Request.URL, res.StatusCode, failedChecks(string(body)))
	}
	return nil
}

// failedChecks are the first few that a server of Kubernetes names where it is not
// well (k8s.io/apiserver v0.37.2, pkg/server/healthz/healthz.go): each in a line of
// its own that begins with [-].
func failedChecks(body string) string {
	var failed []string
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "[-]") && len(line) < 100 && len(failed) < 5 {
			failed = append(failed, line)
		}
	}
	if len(failed) == 0 {
		return ""
	}
	return ": " + strings.Join(failed, ", ")
}

func (t Target) request(ctx context.Context) (*http.Request, error) {
	path := "/" + strings.TrimPrefix(t.Path, "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.Scheme+"://"+t.Host+path, nil)
	if err != nil {
		return nil, fmt.Errorf("probe target: %w", err)
	}
	if t.Header != nil {
		req.Header = t.Header.Clone()
	}
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", "kube-probe/1.37")
	}
	if _, ok := req.Header["Accept"]; !ok {
		req.Header.Set("Accept", "*/*")
	} else if req.Header.Get("Accept") == "" {
		req.Header.Del("Accept")
	}
	req.Host = req.Header.Get("Host")
	return req, nil
}

func sameHost(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}

// dialer leaves no socket in TIME-WAIT for a minute after each question.
func dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
		})
	}}
}
