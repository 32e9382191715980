package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"golang.org/x/sync/errgroup"
)

// Await blocks until the pods of v, or an object that it holds or misses, have
// changed since v, and returns what of it has not: the caller then asks for another
// View with that, which alone is truth. Changes of objects that follow each other are
// one. Nothing is older than 9 minutes, whatever the watches missed: then Await returns
// nil, and all is asked for. Where an object failed in v, it returns after a minute as
// for a change: a refusal may have ended, as of an API server that has just started.
//
// When ctx ends it returns its error, and what has not changed until then. Any other error
// says that nobody watches: the connection is lost, or silent for 45 s
// even when asked by a ping; the API server refused, or shuts down, or no longer
// has what v is based on. It matches one of the errors of this package, or
// context.Canceled. After one Await may return at once: the caller paces the calls.
// Changes that follow each other it tells two seconds apart.
//
// Objects that failed in v, service accounts, owners and the Node are not watched. alive is called
// when each watch has begun, at each bookmark of it, and when the server breaks a
// silence, as it does twice a minute at least, since it is pinged then. (A quiet
// cluster has no bookmarks: k8s.io/apiserver@v0.37.2 pkg/storage/cacher/cache_watcher.go
// sends none that would tell nothing new.) It must not block, is called from several
// goroutines at once, and perhaps once more when Await has just returned. ending is called
// likewise, for each pod that is told to be on its way out: it may be the API server that
// tells, which answers no more then.
func (c *Client) Await(ctx context.Context, v *View, alive func(), ending func(pod types.UID)) (*Still, error) {
	if v.ResourceVersion == "" {
		return nil, errors.New("watch: no View to begin with")
	}
	left := c.pace.watch - time.Since(v.whole)
	if left <= 0 {
		return nil, nil
	}
	asked := ctx
	ctx = klog.NewContext(ctx, klog.New(nil)) // as in View
	ctx, closeConnection := context.WithCancel(ctx)
	defer closeConnection()
	group, ctx := errgroup.WithContext(ctx)
	s, err := c.connect(ctx, func(ctx context.Context, config *rest.Config) (*http.Transport, error) {
		return c.watchTransport(ctx, config, alive)
	})
	if err != nil {
		return nil, err
	}
	told := make(chan Ref)
	still := &Still{of: v}
	group.Go(func() error {
		still.changed = c.pace.settle(ctx, told, v.taken.Add(c.pace.apart))
		return errChanged
	})
	if v.lacks() {
		group.Go(func() error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(c.pace.failed):
				return errDue
			}
		})
	}
	// One after the other, so that the first opens the connection that all the others use.
	for _, w := range c.watches(s, v) {
		body, err := w.open(ctx, left)
		group.Go(func() error {
			if err != nil {
				return s.explain(ctx, w.what, err)
			}
			defer func() { _ = body.Close() }()
			return w.read(ctx, s, body, alive, func(object []byte) {
				if pod := deleted(object); w.ref == (Ref{}) && pod != "" {
					ending(pod)
				}
				select {
				case told <- w.ref:
				case <-ctx.Done():
				}
			})
		})
		if err != nil {
			break
		}
	}
	switch err := group.Wait(); {
	case asked.Err() != nil:
		return still, asked.Err()
	case !errors.Is(err, errDue) && !errors.Is(err, errChanged):
		return nil, err
	case time.Since(v.whole) >= c.pace.watch:
		return nil, nil
	}
	return still, nil
}

// pace is how long an Await has for what.
type pace struct {
	open   time.Duration // to connect, to shake hands, and to have a watch answered, each
	watch  time.Duration // that what a View holds is old at most
	failed time.Duration // until what failed is asked for again
	ping   time.Duration // of silence until the server is asked
	answer time.Duration // until it has answered
	quiet  time.Duration // without another change, after one
	apart  time.Duration // since the View began, until another one is due
}

var calm = pace{10 * time.Second, 9 * time.Minute, time.Minute, 30 * time.Second, 15 * time.Second, 500 * time.Millisecond, 2 * time.Second}

// These end all the watches of an Await: a change is over, or something has had its time.
var (
	errChanged = errors.New("changed")
	errDue     = errors.New("due")
)

// watchTransport speaks HTTP/2 alone, which carries all watches on one
// connection and can ask a silent server for a sign of life.
func (c *Client) watchTransport(ctx context.Context, config *rest.Config, alive func()) (*http.Transport, error) {
	t, err := dialing(ctx, config, c.pace.open)
	if err != nil {
		return nil, err
	}
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &listening{connection, c.pace.ping / 2, time.Now(), alive}, nil
	}
	t.Protocols.SetHTTP2(true)
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: c.pace.ping, PingTimeout: c.pace.answer}
	t.ResponseHeaderTimeout = c.pace.open
	return t, nil
}

// listening is a connection that tells when a silence of its other end is over.
type listening struct {
	net.Conn
	silence time.Duration
	last    time.Time // of the one goroutine that reads
	alive   func()
}

func (l *listening) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if now := time.Now(); n > 0 {
		if now.Sub(l.last) >= l.silence {
			l.alive()
		}
		l.last = now
	}
	return n, err
}

// watch is one watch that is not yet open.
type watch struct {
	what    call
	ref     Ref // of the object; of pods, none
	request *rest.Request
	ends    time.Time // by its own timeout
}

// watches are those of everything in v that can change. All begin at the oldest
// list, which is older than each answer in v: an etcd counts its changes over
// all kinds of objects, so none is missed, and one that came between two answers
// of v costs one View. An object that an older View got begins where that one's did. The
// resourceVersion of an object itself would not do,
// because the history that an API server keeps seldom goes back to its last change.
func (c *Client) watches(s *server, v *View) []*watch {
	var all []*watch
	add := func(what call, ref Ref, field, value string) {
		all = append(all, &watch{what: what, ref: ref, request: s.Get().
			Namespace(what.namespace).Resource(what.resource).
			Param("watch", "true").
			Param("fieldSelector", fields.OneTermEqualSelector(field, value).String()).
			Param("resourceVersion", cmp.Or(v.since[ref], v.ResourceVersion)).
			Param("allowWatchBookmarks", "true")})
	}
	for _, namespace := range c.config.Namespaces {
		add(call{"watch", "pods", namespace, ""}, Ref{}, "spec.nodeName", c.config.Node)
	}
	named := func(ref Ref) {
		add(call{"watch", ref.Kind.resource(), ref.Namespace, ref.Name}, ref, metav1.ObjectNameField, ref.Name)
	}
	for ref := range v.Secrets {
		named(ref)
	}
	for ref := range v.ConfigMaps {
		named(ref)
	}
	for ref := range v.Missing {
		if ref.Kind != ServiceAccount {
			named(ref)
		}
	}
	return all
}

// open asks for the metadata of the objects alone: that something changed is
// all that counts here, and no Secret travels for it.
func (w *watch) open(ctx context.Context, d time.Duration) (io.ReadCloser, error) {
	w.ends = time.Now().Add(d) // the server begins to count later
	return w.request.
		Param("timeoutSeconds", strconv.Itoa(int((d+time.Second-1)/time.Second))). // 0 would be half an hour
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").
		MaxRetries(0).
		Stream(ctx)
}

func (w *watch) read(ctx context.Context, s *server, body io.Reader, alive func(), changed func(object []byte)) error {
	stream := json.NewDecoder(body)
	for {
		alive()
		var event struct {
			Type   string
			Object json.RawMessage
		}
		if err := stream.Decode(&event); err != nil {
			return w.ended(ctx, s, err)
		}
		switch event.Type {
		case "BOOKMARK":
		case "ADDED", "MODIFIED", "DELETED":
			changed(event.Object)
		case "ERROR":
			var status metav1.Status
			if json.Unmarshal(event.Object, &status) == nil && status.Code != 0 {
				return fmt.Errorf("%s: %w", w.what, s.refused(status, w.what, false))
			}
			return fmt.Errorf("%s: %w", w.what, ErrAnswer)
		default:
			return fmt.Errorf("%s: %w", w.what, ErrAnswer)
		}
	}
}

// deleted is the UID of an object that is being deleted, "" of any other.
func deleted(object []byte) types.UID {
	var o metav1.PartialObjectMetadata
	if json.Unmarshal(object, &o) != nil || o.DeletionTimestamp == nil {
		return ""
	}
	return o.UID
}

// ended tells why a watch has no more events.
func (w *watch) ended(ctx context.Context, s *server, err error) error {
	syntax, kind := (*json.SyntaxError)(nil), (*json.UnmarshalTypeError)(nil)
	switch {
	case errors.As(err, &syntax), errors.As(err, &kind):
		return fmt.Errorf("%s: %w", w.what, ErrAnswer) // without the cause, as in ask
	case errors.Is(err, io.EOF) && ctx.Err() == nil && !time.Now().Before(w.ends):
		return errDue
	case errors.Is(err, io.EOF):
		err = errors.New("it ended the watch before its time")
	}
	return s.explain(ctx, w.what, err)
}
