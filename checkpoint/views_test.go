package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
)

// viewed is an API server whose Secrets change in the course of a synctest bubble.
type viewed struct {
	began    time.Time
	versions map[string][]time.Duration // when each Secret changes
	asked    int
	err      error
}

func (v *viewed) view(context.Context, *api.Still) (api.View, error) {
	v.asked++
	view := api.View{Secrets: map[api.Ref]*v1.Secret{}}
	for name, changes := range v.versions {
		secret := &v1.Secret{}
		for i, at := range changes {
			if time.Since(v.began) >= at {
				secret.ResourceVersion = fmt.Sprint(i + 1)
			}
		}
		view.Secrets[api.Ref{Kind: api.Secret, Name: name}] = secret
	}
	return view, v.err
}

func TestChangesThatFollowEachOtherAreOneChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		server := &viewed{began: time.Now(), versions: map[string][]time.Duration{
			"a": {0, 10 * time.Second}, "b": {0, 10*time.Second + 200*ms}, "c": {0, 10*time.Second + 600*ms},
		}}
		v := views{view: server.view}
		ask := func() (string, int) {
			server.asked = 0
			view, err := v.ask(t.Context())
			require.NoError(t, err)
			var all string
			for _, name := range []string{"a", "b", "c"} {
				all += view.Secrets[api.Ref{Kind: api.Secret, Name: name}].ResourceVersion
			}
			return all, server.asked
		}
		all, asked := ask()
		require.Equal(t, "111", all)
		require.Equal(t, 1, asked, "the first View waits for nothing")
		_, asked = ask()
		require.Equal(t, 1, asked, "nothing has changed")

		time.Sleep(10 * time.Second)
		all, asked = ask()
		require.Equal(t, "222", all, "never half of them")
		require.Equal(t, 4, asked)
		_, asked = ask()
		require.Equal(t, 1, asked)
	})
}

func TestWhatNeverStandsStillIsTakenAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &viewed{began: time.Now(), versions: map[string][]time.Duration{"a": {0}}}
		for i := range 100 {
			server.versions["a"] = append(server.versions["a"], time.Duration(i)*100*time.Millisecond)
		}
		v := views{view: server.view}
		_, err := v.ask(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		began := time.Now()
		_, err = v.ask(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1+maxViews, server.asked)
		require.Equal(t, (maxViews-1)*quiet, time.Since(began))

		server.err = errors.New("down")
		_, err = v.ask(t.Context())
		require.EqualError(t, err, "down")
	})
}

// What watches tell of has stood still already.
func TestWhatWasAwaitedIsAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &viewed{began: time.Now(), versions: map[string][]time.Duration{"a": {0, time.Second}}}
		still := &api.Still{}
		var got []*api.Still
		var amended *api.View
		v := views{
			view: func(ctx context.Context, s *api.Still) (api.View, error) {
				got = append(got, s)
				return server.view(ctx, s)
			},
			watch: func(_ context.Context, _ *api.View, _ func(), ending func(types.UID)) (*api.Still, error) {
				ending("gone")
				ending("too")
				return still, nil
			},
			amend: func(change func(*api.View) *api.View) { amended = change(amended) },
		}
		view, err := v.ask(t.Context())
		require.NoError(t, err)
		for _, uid := range []types.UID{"stays", "gone", "too"} {
			view.Pods = append(view.Pods, v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
		}
		amended = view
		require.NoError(t, v.await(t.Context(), view, func() {}))
		require.Nil(t, amended.Pods[0].DeletionTimestamp)
		require.NotNil(t, amended.Pods[1].DeletionTimestamp, "the last to be told of is not the only one")
		require.NotNil(t, amended.Pods[2].DeletionTimestamp)
		require.Nil(t, view.Pods[1].DeletionTimestamp, "a pass may be reading it")
		time.Sleep(time.Second)
		_, err = v.ask(t.Context())
		require.NoError(t, err)
		_, err = v.ask(t.Context())
		require.NoError(t, err)
		require.Equal(t, []*api.Still{nil, still, nil}, got, "it counts once")
	})
}
