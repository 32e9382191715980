package cri

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
)

// ErrNoPins is the answer of a runtime without containerd's image service, such as
// CRI-O, whose own configuration names the images that it pins.
var ErrNoPins = errors.New("the runtime has no image service as containerd has one")

// Labels of an image. The first one makes containerd's CRI tell the kubelet that the
// image is pinned, as soon as it hears of the change (containerd v2.4.2
// internal/cri/labels/labels.go, internal/cri/store/image/image.go; v1.6.20 does not
// know it). The second one says that it was us.
const (
	pinLabel = "io.cri-containerd.pinned"
	ourLabel = "pod-checkpointer.io/pinned"
)

// Pin lets the kubelet keep an image, named by its ID, when it frees disk space. To
// pin again changes nothing. Whether the runtime knows of pins, Image tells.
func (c *Client) Pin(ctx context.Context, id string) error {
	return c.label(ctx, "pin image "+id, id, map[string]string{pinLabel: "pinned", ourLabel: "true"})
}

// Unpin takes back what Pin did. An image that is gone is no error.
func (c *Client) Unpin(ctx context.Context, id string) error {
	err := c.label(ctx, "unpin image "+id, id, map[string]string{pinLabel: "", ourLabel: ""})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// Pins returns the IDs of the images that Pin has pinned, in this life of the daemon
// or an earlier one.
func (c *Client) Pins(ctx context.Context) ([]string, error) {
	request := protowire.AppendTag(nil, 1, protowire.BytesType)
	request = protowire.AppendString(request, fmt.Sprintf("labels.%q==true", ourLabel))
	answer, err := c.imageService(ctx, "list pinned images", "List", request)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, image := range fields(answer, 1) {
		for _, name := range fields(image, 1) {
			ids = append(ids, string(name))
		}
	}
	return ids, nil
}

// label sets labels of an image and leaves its other ones; an empty value removes one.
// The request is an UpdateImageRequest (api/services/images/v1/images.proto): in field 1
// the Image as containerd has just told it, with these labels (field 2), in field 2 a mask
// that names what is to change. All the rest of the image must stand there too: containerd
// 2.4.2 reads its target (field 3) whatever the mask says, and ends in a panic, with every
// pod's runtime, where there is none.
func (c *Client) label(ctx context.Context, what, id string, labels map[string]string) error {
	image, err := c.image(ctx, what, id)
	if err != nil {
		return err
	}
	var mask []byte
	for key, value := range labels {
		entry := protowire.AppendTag(nil, 1, protowire.BytesType)
		entry = protowire.AppendString(entry, key)
		entry = protowire.AppendTag(entry, 2, protowire.BytesType)
		entry = protowire.AppendString(entry, value)
		image = protowire.AppendTag(image, 2, protowire.BytesType)
		image = protowire.AppendBytes(image, entry)
		mask = protowire.AppendTag(mask, 1, protowire.BytesType)
		mask = protowire.AppendString(mask, "labels."+key)
	}
	request := protowire.AppendTag(nil, 1, protowire.BytesType)
	request = protowire.AppendBytes(request, image)
	request = protowire.AppendTag(request, 2, protowire.BytesType)
	request = protowire.AppendBytes(request, mask)
	_, err = c.imageService(ctx, what, "Update", request)
	return err
}

// image returns the message of an image, which names it and its target.
func (c *Client) image(ctx context.Context, what, id string) ([]byte, error) {
	request := protowire.AppendTag(nil, 1, protowire.BytesType)
	request = protowire.AppendString(request, id)
	answer, err := c.imageService(ctx, what, "Get", request)
	if err != nil {
		return nil, err
	}
	for _, image := range fields(answer, 1) {
		if len(fields(image, 1)) == 1 && len(fields(image, 3)) == 1 {
			return image, nil
		}
	}
	return nil, fmt.Errorf("%s at %s: the runtime tells no image as containerd does", what, c.endpoint)
}

// imageService asks one method of containerd's image service, in the namespace of the
// kubelet, without its package, as subscribe does.
func (c *Client) imageService(ctx context.Context, what, method string, request []byte) ([]byte, error) {
	done, err := c.ask(ctx)
	if err != nil {
		return nil, c.explain(what, err)
	}
	defer done()
	in, out := &emptypb.Empty{}, &emptypb.Empty{}
	in.ProtoReflect().SetUnknown(request)
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io")
	err = c.conn.Invoke(ctx, "/containerd.services.images.v1.Images/"+method, in, out)
	if status.Code(err) == codes.Unimplemented {
		return nil, fmt.Errorf("%s at %s: %w", what, c.endpoint, ErrNoPins)
	}
	return out.ProtoReflect().GetUnknown(), c.explain(what, err)
}

// fields are the values of a message's field that holds bytes. Of a message that is
// broken they are those before the break.
func fields(message []byte, number protowire.Number) [][]byte {
	var values [][]byte
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return values
		}
		message = message[size:]
		if n == number && kind == protowire.BytesType {
			if value, size := protowire.ConsumeBytes(message); size >= 0 {
				values = append(values, value)
			}
		}
		if size = protowire.ConsumeFieldValue(n, kind, message); size < 0 {
			return values
		}
		message = message[size:]
	}
	return values
}
