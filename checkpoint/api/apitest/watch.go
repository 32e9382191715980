package apitest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// event is one change of an object, as the history of an API server holds it.
type event struct {
	revision int64
	kind     watch.EventType
	where    location
	object   Object
}

// news is what a watch has not yet told of.
type news struct {
	events   []event
	bookmark bool
	revision int64           // up to which it then has told all
	next     <-chan struct{} // closed when there is more
}

// Bookmark sends a bookmark on every watch that asked for them.
func (s *Server) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.bookmarks++
	s.state.tell()
}

// Compact forgets the history, as an API server does when it is started: a
// watch from an older resourceVersion than the newest gets an event of 410 Gone.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.events, s.state.oldest = nil, s.state.revision
}

// EndWatches ends every watch in good order, as an API server does that shuts down.
func (s *Server) EndWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.ended++
	s.state.tell()
}

// Watches returns how many watches the server has open.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches
}

func (s *Server) watching(change int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches += change
}

// watch sends metadata alone, in JSON. A resourceVersion of the future is taken
// without a word, and nothing comes until it is reached, as with a real one.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, where location) {
	query := r.URL.Query()
	selector, err := fields.ParseSelector(query.Get("fieldSelector"))
	from, badVersion := strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
	seconds, badTimeout := strconv.Atoi(query.Get("timeoutSeconds"))
	if err != nil || badVersion != nil || badTimeout != nil || !strings.HasPrefix(r.Header.Get("Accept"), "application/json;as=PartialObjectMetadata;") {
		send(w, r, http.StatusBadRequest, status(apierrors.NewBadRequest("apitest does not watch like this: "+r.URL.RawQuery)))
		return
	}
	s.watching(+1)
	defer s.watching(-1)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	stream := json.NewEncoder(w)
	tell := func(kind watch.EventType, object runtime.Object) {
		_ = stream.Encode(metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Object: object}})
	}
	timeout := time.After(time.Duration(seconds) * time.Second)
	s.mu.Lock()
	bookmarks, ended, expired := s.state.bookmarks, s.state.ended, from < s.state.oldest
	s.mu.Unlock()
	if expired {
		tell(watch.Error, status(apierrors.NewResourceExpired("too old resource version: "+query.Get("resourceVersion"))))
		return
	}
	for {
		s.mu.Lock()
		n := s.state.since(from, &bookmarks)
		over := ended != s.state.ended
		s.mu.Unlock()
		if over {
			return
		}
		for _, e := range n.events {
			if e.where.kind == where.kind && e.where.namespace == where.namespace && selector.Matches(selected(e.object)) {
				tell(e.kind, meta.AsPartialObjectMetadata(e.object))
			}
		}
		from = max(from, n.revision)
		if n.bookmark && query.Get("allowWatchBookmarks") == "true" {
			tell(watch.Bookmark, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.FormatInt(from, 10)}})
		}
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-n.next:
		case <-timeout:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (s *state) since(revision int64, bookmarks *int) news {
	n := news{revision: s.revision, next: s.told, bookmark: *bookmarks != s.bookmarks}
	*bookmarks = s.bookmarks
	for _, e := range s.events {
		if e.revision > revision {
			n.events = append(n.events, e)
		}
	}
	return n
}

// happened notes that object is now as it is, or gone, and wakes the watches.
func (s *state) happened(kind watch.EventType, where string, object Object) {
	s.events = append(s.events, event{s.revision, kind, located(where), object})
	s.tell()
}

func (s *state) tell() {
	close(s.told)
	s.told = make(chan struct{})
}

// selected are the fields that lists and watches can be restricted by.
func selected(o Object) fields.Set {
	set := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	if pod, ok := o.(*corev1.Pod); ok {
		set["spec.nodeName"] = pod.Spec.NodeName
	}
	return set
}
