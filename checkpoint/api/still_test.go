package api_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api/apitest"
)

// heard is a node whose Secret certs has changed, and what an Await left of its View.
func heard(t *testing.T, change ...apitest.Object) (*apitest.Server, *api.Client, api.View, *api.Still) {
	t.Helper()
	s, c, v := watched(t)
	c.Hasten(time.Minute, time.Minute, time.Minute, time.Minute)
	a := await(t, s, c, v)
	s.Put(change...)
	require.NoError(t, a.ends())
	require.NotNil(t, a.still)
	s.Requests()
	return s, c, v, a.still
}

func again(t *testing.T, c *api.Client, still *api.Still) api.View {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	v, err := c.View(ctx, refs, still)
	require.NoError(t, err)
	return v
}

func TestWhatHasNotChangedIsNotAskedForAgain(t *testing.T) {
	s, c, was, still := heard(t, secret("kube-system", "certs"))
	v := again(t, c, still)
	require.Equal(t, []string{
		"GET /api/v1/namespaces/kube-system",
		"GET /api/v1/nodes/master-0",
		"GET /api/v1/namespaces/kube-system/pods?fieldSelector=spec.nodeName%3Dmaster-0",
		"GET /api/v1/namespaces/kube-system/secrets/certs",
		"GET /api/v1/namespaces/kube-system/secrets/forbidden",
	}, s.Requests(), "what changed, and what nobody could watch")
	require.NotEqual(t, was.Secrets[name("certs")].ResourceVersion, v.Secrets[name("certs")].ResourceVersion)
	require.Equal(t, was.ConfigMaps, v.ConfigMaps)
	require.Equal(t, was.Missing, v.Missing)
	require.Len(t, v.Failed, 1)

	again(t, c, nil)
	require.Len(t, s.Requests(), 8, "all of it")
}

// Who asks for another View before there is a change keeps what has none.
func TestWhatIsSoWhenAnAwaitIsBrokenOffIsStillSo(t *testing.T) {
	s, c, v := watched(t)
	c.Hasten(time.Minute, time.Minute, time.Minute, time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	a := begin(ctx, t, s, c, v)
	a.lives(5)
	cancel()
	require.ErrorIs(t, a.ends(), context.Canceled)
	s.Requests()
	again(t, c, a.still)
	require.Len(t, s.Requests(), 4, "the cluster, the node, its pods, and what nobody could watch")
}

// Between two Awaits nobody watches, and a watch may be late.
func TestAChangeThatNoWatchToldInTimeIsToldByTheNext(t *testing.T) {
	s, c, _, still := heard(t, secret("kube-system", "certs"))
	s.Put(configMap("kube-system", "flags"))
	v := again(t, c, still)
	a := begin(t.Context(), t, s, c, v)
	require.NoError(t, a.ends())
	require.NotEqual(t, v.ConfigMaps, again(t, c, a.still).ConfigMaps)
}

func TestChangesThatFollowEachOtherAreToldAsOne(t *testing.T) {
	s, c, v := watched(t)
	c.Hasten(time.Minute, time.Minute, time.Minute, time.Minute)
	a := await(t, s, c, v)
	s.Put(secret("kube-system", "certs"))
	a.lives(6)
	s.Put(secret("kube-system", "gone"))
	require.NoError(t, a.ends())
	v = again(t, c, a.still)
	require.Len(t, v.Secrets, 2)
	a = await(t, s, c, v) // and none of them again
	s.Put(pod("kube-system", "p", "master-0"))
	require.NoError(t, a.ends())
}

func TestOfAnotherClusterNothingIsStillSo(t *testing.T) {
	for what, change := range map[string]func(*apitest.Server){
		"another cluster": func(s *apitest.Server) { s.SetKubeSystemUID("another") },
		"an older state":  func(s *apitest.Server) { s.Rewind(1) },
	} {
		t.Run(what, func(t *testing.T) {
			s, c, _, still := heard(t, secret("kube-system", "certs"))
			change(s)
			again(t, c, still)
			require.Contains(t, s.Requests(), "GET /api/v1/namespaces/kube-system/configmaps/flags")
		})
	}
}

func TestNothingIsTakenForStillSoForEver(t *testing.T) {
	const long = time.Second
	begun := time.Now()
	s, c, v := watched(t)
	c.Hasten(time.Minute, long, time.Minute, time.Minute)
	for n := 0; ; n++ { // a pod that changes all the time
		a := begin(t.Context(), t, s, c, v)
		s.Put(pod("kube-system", "q", "master-0"))
		require.NoError(t, a.ends())
		if a.still == nil {
			require.Positive(t, n)
			require.GreaterOrEqual(t, time.Since(begun), long)
			return
		}
		require.Less(t, time.Since(begun), 10*long)
		v = again(t, c, a.still)
	}
}

func TestWhatFailedIsAskedForAgain(t *testing.T) {
	s, c, v := watched(t)
	s.Heal()
	s.Put(secret("kube-system", "forbidden")) // which nobody watches
	c.HastenFailed(time.Millisecond)
	a := begin(t.Context(), t, s, c, v)
	require.NoError(t, a.ends())
	s.Requests()
	v = again(t, c, a.still)
	require.Empty(t, v.Failed)
	require.Contains(t, v.Secrets, name("forbidden"))
	require.NotContains(t, s.Requests(), "GET /api/v1/namespaces/kube-system/secrets/certs", "what did not fail is known")

	v.Failed = map[api.Ref]error{{Kind: api.ServiceAccount}: api.ErrForbidden}
	a = await(t, s, c, v)
	s.Bookmark()
	a.lives(10)
	require.Empty(t, a.done, "a Role need not allow that")
}

// However still its watches are.
func TestWhatIsStillSoIsNoLongerSoThanTheRest(t *testing.T) {
	s, c, v := watched(t)
	c.Hasten(time.Minute, time.Minute, time.Minute, time.Minute)
	v.Age(58 * time.Second)
	a := begin(t.Context(), t, s, c, v)
	require.NoError(t, a.ends())
	require.Nil(t, a.still)
	require.Contains(t, s.Requests()[0], "&timeoutSeconds=2&")

	v.Age(time.Minute)
	require.NoError(t, begin(t.Context(), t, s, c, v).ends())
	require.Empty(t, s.Requests())
}
