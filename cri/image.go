package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Image is one that the runtime has.
type Image struct {
	ID     string // which the kubelet calls imageRef
	Pinned bool   // the kubelet does not remove it to free disk space
}

// Image returns the image that ref names, and whether the runtime has one.
func (c *Client) Image(ctx context.Context, ref string) (Image, bool, error) {
	what := "look up image " + ref
	done, err := c.ask(ctx)
	if err != nil {
		return Image{}, false, c.explain(what, err)
	}
	defer done()
	answer, err := c.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	if err != nil {
		return Image{}, false, c.explain(what, err)
	}
	return Image{ID: answer.GetImage().GetId(), Pinned: answer.GetImage().GetPinned()}, answer.Image != nil, nil
}
