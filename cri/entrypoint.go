package cri

import (
	"context"
	"encoding/json"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Entrypoint is what an image runs where a container names no command.
type Entrypoint struct {
	Entrypoint []string
	Command    []string // what the image has as its arguments
}

// Entrypoint returns that of an image, by its reference or ID. It is nil where the
// runtime has the image and does not tell: CRI leaves that to each runtime. containerd
// does (v2.4.2 internal/cri/server/images/image_status.go, verboseImageInfo), and so
// does CRI-O (server/image_status.go, createImageInfo), in the same words.
func (c *Client) Entrypoint(ctx context.Context, ref string) (*Entrypoint, error) {
	what := "look up entrypoint of image " + ref
	done, err := c.ask(ctx)
	if err != nil {
		return nil, c.explain(what, err)
	}
	defer done()
	answer, err := c.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}, Verbose: true})
	switch {
	case err != nil:
		return nil, c.explain(what, err)
	case answer.Image == nil:
		return nil, c.explain(what, fmt.Errorf("the runtime does not have it"))
	}
	var info struct {
		ImageSpec *struct {
			Config struct {
				Entrypoint, Cmd []string
			}
		}
	}
	if json.Unmarshal([]byte(answer.Info["info"]), &info) != nil || info.ImageSpec == nil {
		return nil, nil
	}
	return &Entrypoint{info.ImageSpec.Config.Entrypoint, info.ImageSpec.Config.Cmd}, nil
}
