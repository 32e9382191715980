package checkpoint

import (
	"context"
	"maps"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
)

const (
	// quiet is for how long what pods are made of must not change to be taken for whole:
	// whoever changes several objects, as kubectl apply does, changes one after the other.
	quiet = 500 * time.Millisecond
	// maxViews is how many Views are asked for at most until they are still.
	maxViews = 4
)

// views are asked for one after the other.
type views struct {
	view func(context.Context) (api.View, error)
	last map[api.Ref]string // what the last one held; nil: there was none
}

// ask returns a View whose objects are those of the View before it, or of one asked
// for a moment ago: changes that follow each other make one generation. What never
// stands still is taken as it is.
func (v *views) ask(ctx context.Context) (*api.View, error) {
	for n := 1; ; n++ {
		view, err := v.view(ctx)
		if err != nil {
			return &view, err
		}
		before, now := v.last, view.Versions()
		v.last = now
		if before == nil || n == maxViews || maps.Equal(before, now) {
			return &view, nil
		}
		wait(ctx, quiet)
	}
}
