package checkpoint

import (
	"context"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
)

const (
	// quiet is for how long what pods are made of must not change to be taken for whole
	// where no watch tells: whoever changes several objects, as kubectl apply does, changes
	// one after the other.
	quiet = 500 * time.Millisecond
	// maxViews is how many Views are asked for at most until they are still.
	maxViews = 4
)

// views are asked for one after the other, and awaited between two of them.
type views struct {
	view  func(context.Context, *api.Still) (api.View, error)
	watch func(ctx context.Context, v *api.View, alive func(), ending func(types.UID)) (*api.Still, error)
	amend func(func(*api.View) *api.View) // changes the last one
	last  map[api.Ref]string              // what the last one held; nil: there was none
	still *api.Still                      // what watches have told of it
}

// ask returns a View whose objects are those of the View before it, or of one asked
// for a moment ago: changes that follow each other make one generation. What never
// stands still is taken as it is, and what watches have waited for already.
func (v *views) ask(ctx context.Context) (*api.View, error) {
	still := v.still
	v.still = nil
	for n := 1; ; n++ {
		view, err := v.view(ctx, still)
		if err != nil {
			return &view, err
		}
		before, now := v.last, view.Versions()
		v.last = now
		if before == nil || still != nil || n == maxViews || maps.Equal(before, now) {
			return &view, nil
		}
		wait(ctx, quiet)
	}
}

// await blocks until the view is out of date, or another one is asked for all the same, and
// keeps what of it is still so. That a pod is
// being deleted counts at once: where it is the API server, there is no next View.
func (v *views) await(ctx context.Context, view *api.View, alive func()) (err error) {
	v.still, err = v.watch(ctx, view, alive, func(pod types.UID) {
		v.amend(func(last *api.View) *api.View { return without(last, pod) })
	})
	return err
}

// without is the view in which that pod is being deleted.
func without(view *api.View, pod types.UID) *api.View {
	amended := *view
	amended.Pods = slices.Clone(view.Pods)
	for i := range amended.Pods {
		if p := &amended.Pods[i]; p.UID == pod && p.DeletionTimestamp == nil {
			p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
	}
	return &amended
}
