package api_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api/apitest"
)

// awaited is an Await under way.
type awaited struct {
	t      *testing.T
	server *apitest.Server
	signs  atomic.Int64
	done   chan error
	still  *api.Still   // once done
	ending atomic.Value // UID of a pod
}

// await has all the watches of v open when it returns.
func await(t *testing.T, s *apitest.Server, c *api.Client, v api.View) *awaited {
	t.Helper()
	a := begin(t.Context(), t, s, c, v)
	watches := 1 + len(v.Secrets) + len(v.ConfigMaps) + len(v.Missing)
	a.lives(int64(watches))
	require.Equal(t, watches, s.Watches())
	return a
}

func begin(ctx context.Context, t *testing.T, s *apitest.Server, c *api.Client, v api.View) *awaited {
	a := &awaited{t: t, server: s, done: make(chan error, 1)}
	go func() {
		var err error
		a.still, err = c.Await(ctx, &v, func() { a.signs.Add(1) }, func(pod types.UID) { a.ending.Store(pod) })
		a.done <- err
	}()
	return a
}

// lives waits for that many signs of life in all, or more: it is pinged too.
func (a *awaited) lives(signs int64) {
	a.t.Helper()
	require.Eventually(a.t, func() bool { return a.signs.Load() >= signs }, 5*time.Second, time.Millisecond)
}

// ends waits for the end, after which nothing may be left.
func (a *awaited) ends() error {
	a.t.Helper()
	var err error
	select {
	case err = <-a.done:
	case <-time.After(5 * time.Second):
		require.Fail(a.t, "it goes on waiting")
	}
	a.server.Continue() // or it sees no connection end
	require.Eventually(a.t, func() bool { return a.server.Connections() == 0 }, 5*time.Second, time.Millisecond)
	if err != nil {
		assert.NotContains(a.t, err.Error(), secretValue)
		assert.NotContains(a.t, err.Error(), apitest.Token)
		assert.NotContains(a.t, err.Error(), "/api/")
	}
	return err
}

// watched is a node with one pod, one Secret that is there and one that is not,
// and one that may not be read; one ConfigMap that is there and one that is not.
func watched(t *testing.T) (*apitest.Server, *api.Client, api.View) {
	t.Helper()
	s := start(t)
	s.Put(configured(pod("kube-system", "p", "master-0", "certs", "gone", "forbidden"), "flags", "gone"),
		secret("kube-system", "certs"), configMap("kube-system", "flags"))
	s.Fail("/secrets/forbidden", http.StatusForbidden)
	c := client(t, s.Kubeconfig())
	c.Part(0)
	v, err := view(t, c)
	require.NoError(t, err)
	s.Requests()
	return s, c, v
}

func TestAwaitEndsWithAChange(t *testing.T) {
	for what, change := range map[string]func(*apitest.Server){
		"pod changed":    func(s *apitest.Server) { s.Put(pod("kube-system", "p", "master-0")) },
		"pod created":    func(s *apitest.Server) { s.Put(pod("kube-system", "q", "master-0")) },
		"pod gone":       func(s *apitest.Server) { s.Delete(pod("kube-system", "p", "master-0")) },
		"Secret changed": func(s *apitest.Server) { s.Put(secret("kube-system", "certs")) },
		"Secret created": func(s *apitest.Server) { s.Put(secret("kube-system", "gone")) },
		"Secret gone":    func(s *apitest.Server) { s.Delete(secret("kube-system", "certs")) },

		"ConfigMap changed": func(s *apitest.Server) { s.Put(configMap("kube-system", "flags")) },
		"ConfigMap created": func(s *apitest.Server) { s.Put(configMap("kube-system", "gone")) },
		"ConfigMap gone":    func(s *apitest.Server) { s.Delete(configMap("kube-system", "flags")) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, c, v := watched(t)
			a := await(t, s, c, v)
			change(s)
			require.NoError(t, a.ends())

			s, c, v = watched(t)
			change(s)
			require.NoError(t, begin(t.Context(), t, s, c, v).ends(), "a change since the View")
		})
	}
}

func TestAPodOnItsWayOutIsTold(t *testing.T) {
	s, c, v := watched(t)
	a := await(t, s, c, v)
	gone := pod("kube-system", "p", "master-0")
	gone.UID, gone.DeletionTimestamp = "its-uid", &metav1.Time{Time: time.Now()}
	s.Put(gone)
	require.NoError(t, a.ends())
	require.Equal(t, types.UID("its-uid"), a.ending.Load())

	v = again(t, c, nil)
	a = await(t, s, c, v)
	s.Put(pod("kube-system", "q", "master-0"))
	require.NoError(t, a.ends())
	require.Nil(t, a.ending.Load(), "another one, which stays")
}

// The next View has its time, and what happens until then is told all the same.
func TestUntilTheNextViewTheWatchesGoOn(t *testing.T) {
	s, c, v := watched(t)
	c.Part(time.Minute)
	a := await(t, s, c, v)
	s.Put(pod("kube-system", "p", "master-0"))
	gone := pod("kube-system", "p", "master-0")
	gone.UID, gone.DeletionTimestamp = "its-uid", &metav1.Time{Time: time.Now()}
	s.Put(gone)
	require.Eventually(t, func() bool { return a.ending.Load() == types.UID("its-uid") }, 5*time.Second, time.Millisecond)
	require.Empty(t, a.done)

	s, c, v = watched(t)
	c.Part(time.Second)
	a = await(t, s, c, v)
	s.Put(pod("kube-system", "p", "master-0"))
	require.NoError(t, a.ends())
	require.GreaterOrEqual(t, time.Since(v.Taken()), time.Second)
}

func TestAwaitSleepsThroughAllElse(t *testing.T) {
	s, c, v := watched(t)
	a := await(t, s, c, v)
	s.Put(pod("kube-system", "p", "master-1"), pod("default", "p", "master-0"), node0(),
		secret("kube-system", "other"), secret("default", "certs"), secret("kube-system", "forbidden"),
		configMap("kube-system", "certs"), configMap("default", "flags"))
	for n := range int64(3) {
		s.Bookmark() // comes after the events, if they come
		a.lives(5 * (n + 2))
	}
	require.Empty(t, a.done)
	require.Equal(t, 1, s.Connections())
	require.ElementsMatch(t, []string{
		watchOf(v, "pods", "spec.nodeName%3Dmaster-0"),
		watchOf(v, "secrets", "metadata.name%3Dcerts"),
		watchOf(v, "secrets", "metadata.name%3Dgone"),
		watchOf(v, "configmaps", "metadata.name%3Dflags"),
		watchOf(v, "configmaps", "metadata.name%3Dgone"),
	}, s.Requests())
	s.Put(pod("kube-system", "p", "master-0"))
	require.NoError(t, a.ends())
}

func watchOf(v api.View, resource, selector string) string {
	return "GET /api/v1/namespaces/kube-system/" + resource + "?allowWatchBookmarks=true&fieldSelector=" + selector +
		"&resourceVersion=" + v.ResourceVersion + "&timeoutSeconds=540&watch=true"
}

func TestAwaitEndsInTimeForAnotherView(t *testing.T) {
	s, c, v := watched(t)
	c.Hasten(time.Minute, time.Second, time.Minute, time.Minute)
	began := time.Now()
	require.NoError(t, await(t, s, c, v).ends())
	require.GreaterOrEqual(t, time.Since(began), time.Second)
	require.Len(t, s.Requests(), 5, "watched again by itself")
}

// Without bookmarks too, as long as the server answers.
func TestAQuietServerIsAlive(t *testing.T) {
	s, c, v := watched(t)
	c.Hasten(time.Minute, time.Minute, 20*time.Millisecond, time.Minute)
	a := begin(t.Context(), t, s, c, v)
	require.Eventually(t, func() bool { return a.signs.Load() > 10 }, 5*time.Second, time.Millisecond, "by its answers to pings")
	require.Empty(t, a.done)
	s.Put(pod("kube-system", "p", "master-0"))
	require.NoError(t, a.ends())
}

func TestLostWatchIsAnError(t *testing.T) {
	for what, tt := range map[string]struct {
		breaks func(*apitest.Server)
		err    error
		says   string
	}{
		"killed": {(*apitest.Server).Kill, api.ErrUnreachable, "watch "},
		"reset":  {(*apitest.Server).Reset, api.ErrUnreachable, "connection reset by peer"},
		"hung":   {(*apitest.Server).Hang, api.ErrUnreachable, "http2: client connection lost"},
		"ended":  {(*apitest.Server).EndWatches, api.ErrUnreachable, "it ended the watch before its time"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, c, v := watched(t)
			if what == "hung" {
				c.Hasten(time.Minute, time.Minute, 200*time.Millisecond, 200*time.Millisecond)
			}
			a := await(t, s, c, v)
			tt.breaks(s)
			err := a.ends()
			require.ErrorIs(t, err, tt.err)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

func TestRefusedWatchIsAnError(t *testing.T) {
	const event = `{"type":"ADDED","object":{"x":"` + secretValue
	for what, tt := range map[string]struct {
		breaks func(*apitest.Server)
		err    error
		says   string
	}{
		"dead": {(*apitest.Server).Kill, api.ErrUnreachable, "watch pods in namespace kube-system: "},
		"hung": {(*apitest.Server).Hang, api.ErrTimeout, "watch pods in namespace kube-system: "},
		"no answer": {func(s *apitest.Server) {
			s.Answer("/secrets", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		}, api.ErrTimeout, "no answer in time"},
		"black hole":     {(*apitest.Server).BlackHole, api.ErrTimeout, "watch pods in namespace kube-system: "},
		"401":            {fail("/", 401), api.ErrUnauthorized, "those of kubeconfig /"},
		"403 of pods":    {fail("/pods", 403), api.ErrForbidden, "watch pods in namespace kube-system: forbidden: "},
		"403 of Secrets": {fail("/secrets", 403), api.ErrForbidden, "watch secrets "},
		"404 of path":    {fail("/pods", 404), api.ErrAnswer, "404 Not Found"},
		"410":            {func(s *apitest.Server) { s.Put(node0()); s.Compact() }, api.ErrRefused, "too old resource version: "},
		"429":            {fail("/pods", 429), api.ErrThrottled, ""},
		"503":            {fail("/secrets", 503), api.ErrServer, ""},
		"login page":     {answer("/pods", "<html>"+secretValue), api.ErrAnswer, ""},
		"another type":   {answer("/pods", `["`+secretValue+`"]`), api.ErrAnswer, ""},
		"another event":  {answer("/pods", `{"type":"`+secretValue+`"}`), api.ErrAnswer, ""},
		"no event":       {answer("/pods", `{}`), api.ErrAnswer, ""},
		"bare error":     {answer("/pods", `{"type":"ERROR","object":{"x":"`+secretValue+`"}}`), api.ErrAnswer, ""},
		"half an event":  {answer("/pods", event), api.ErrUnreachable, ""},
		"ended at once":  {answer("/pods", ""), api.ErrUnreachable, "it ended the watch before its time"},
		"redirected": {func(s *apitest.Server) {
			s.Answer("/pods", http.RedirectHandler("http://127.0.0.1:1/", http.StatusFound).ServeHTTP)
		}, api.ErrAnswer, ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, c, v := watched(t)
			if errors.Is(tt.err, api.ErrTimeout) {
				c.Hasten(100*time.Millisecond, time.Minute, time.Minute, time.Minute)
			}
			tt.breaks(s)
			err := begin(t.Context(), t, s, c, v).ends()
			require.ErrorIs(t, err, tt.err)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

func TestAwaitNeedsCredentialsAndAView(t *testing.T) {
	s, _, v := watched(t)
	require.ErrorIs(t, begin(t.Context(), t, s, client(t, "/absent"), v).ends(), api.ErrCredentials)
	require.Error(t, begin(t.Context(), t, s, client(t, s.Kubeconfig()), api.View{Pods: []corev1.Pod{}}).ends())
	require.Empty(t, s.Requests())
}

func TestAwaitEndsWhenCanceled(t *testing.T) {
	s, c, v := watched(t)
	ctx, cancel := context.WithCancel(t.Context())
	a := begin(ctx, t, s, c, v)
	a.lives(5)
	cancel()
	require.ErrorIs(t, a.ends(), context.Canceled)
}
