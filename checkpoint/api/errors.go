package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Why a View, or one part of it, is unknown, or an Await over. The text of an error says what
// was asked and what helps; it holds no token and no part of an object.
var (
	ErrCredentials  = errors.New("use credentials")                // absent, broken, or a file that they name is
	ErrUnreachable  = errors.New("API server not reachable")       // refused, reset, or its certificate is not trusted
	ErrTimeout      = errors.New("no answer in time")              // the deadline of the context passed
	ErrUnauthorized = errors.New("credentials not accepted")       // 401
	ErrForbidden    = errors.New("forbidden")                      // 403; also for a while after an API server's start
	ErrRefused      = errors.New("API server refuses")             // another 4xx; 410: what was asked for is too old
	ErrThrottled    = errors.New("API server refuses for load")    // 429
	ErrServer       = errors.New("API server fails")               // 5xx
	ErrAnswer       = errors.New("not an API server's answer")     // something else, or a part of one
	ErrChanging     = errors.New("changed while it was read")      // an object, again and again
	ErrNodeUnknown  = errors.New("node unknown to the API server") // 404 of the Node
)

// errNotFound is an API server's word that the named object does not exist.
var errNotFound = errors.New("not found")

// explain turns client-go's error for a request into one of this package.
func (s *server) explain(ctx context.Context, what call, err error) error {
	var status apierrors.APIStatus
	var network net.Error
	switch {
	// The end of the context also closes the connection, and either may be what client-go saw.
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%s: %w", what, context.Canceled)
	case ctx.Err() != nil, errors.As(err, &network) && network.Timeout():
		return fmt.Errorf("%s: %w: %s", what, ErrTimeout, s.config.Host)
	case errors.As(err, &status):
		return fmt.Errorf("%s: %w", what, s.refused(status.Status(), what, apierrors.IsUnexpectedServerError(err)))
	}
	if full := (*url.Error)(nil); errors.As(err, &full) {
		err = full.Err // without the URL, which what has said in fewer words
	}
	return fmt.Errorf("%s: %w: %s: %w", what, ErrUnreachable, s.config.Host, err)
}

// refused explains an HTTP status. It is foreign if no Status object came with
// it: then its text is that of anybody, and a 404 speaks of a path, not of an object.
func (s *server) refused(status metav1.Status, what call, foreign bool) error {
	said := cmp.Or(firstLine(status.Message), string(status.Reason))
	if foreign {
		said = fmt.Sprintf("%d %s", status.Code, http.StatusText(int(status.Code)))
	}
	switch code := status.Code; {
	case code == http.StatusUnauthorized:
		return fmt.Errorf("%w: those of %s%s", ErrUnauthorized, s.from, s.expired())
	case code == http.StatusForbidden:
		return fmt.Errorf("%w: %s: if this does not pass within minutes of the API server's start, %s: see manifests/base/rbac.yaml", ErrForbidden, said, what.rule())
	case code == http.StatusNotFound && !foreign && status.Details != nil && status.Details.Name == what.name:
		return errNotFound
	case code == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %s", ErrThrottled, said)
	case !foreign && code != http.StatusNotFound && code >= http.StatusBadRequest && code < http.StatusInternalServerError:
		return fmt.Errorf("%w: %s", ErrRefused, said)
	case code >= http.StatusInternalServerError:
		return fmt.Errorf("%w: %s", ErrServer, said)
	}
	return fmt.Errorf("%w: %s: is %s the API server?", ErrAnswer, said, s.config.Host)
}

// expired adds the likeliest reason of a 401. The wall clock is the one that
// certificates and tokens are judged by.
func (s *server) expired() string {
	what, at := expiry(s.config)
	if at.IsZero() || time.Now().Before(at) {
		return ""
	}
	return ": the " + what + " expired at " + at.UTC().Format(time.RFC3339)
}

// firstLine keeps a log line short, whatever a server sends.
func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return s
}
