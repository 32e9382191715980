package cri

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
)

// ErrNoEvents is the answer of a runtime without containerd's event service, such
// as CRI-O. All that is lost is the hint.
var ErrNoEvents = errors.New("the runtime has no event service as containerd has one")

// topics are the events that change what Pods returns. The end of a process is not
// among them, for each exec probe has one; that of a container is followed by the
// deletion of its task. containerd serves the kubelet in its namespace k8s.io
// (containerd v2.4.2 core/events/events.go, internal/cri/constants/constants.go).
var topics = []string{"/tasks/create", "/tasks/start", "/tasks/delete", "/tasks/oom"}

// Events calls wake for each container that begins or ends, until ctx ends or the
// stream breaks, and then returns why. It is a hint: what happened before the
// runtime has taken the subscription, or while there is none, nobody tells. wake
// must not block.
//
// It asks containerd's own service, which keeps a queue for each subscriber. CRI's
// GetContainerEvents would let a subscriber that is slow stall the whole runtime
// (containerd v2.4.2 internal/eventq/eventq.go).
func (c *Client) Events(ctx context.Context, wake func()) error {
	err := c.subscribe(ctx, wake)
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case status.Code(err) == codes.Unimplemented:
		err = ErrNoEvents
	case errors.Is(err, io.EOF):
		err = errors.New("the runtime has ended the stream")
	default:
		err = c.cause(err)
	}
	return fmt.Errorf("runtime events at %s: %w", c.endpoint, err)
}

// subscribe speaks the one method that is needed of the service without its
// package, which would bring ttrpc and logrus: 0.3 MiB of program, 0.6 MB of memory.
// An event says nothing that Pods does not say better, so its content is dropped.
func (c *Client) subscribe(ctx context.Context, wake func()) error {
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/containerd.services.events.v1.Events/Subscribe")
	if err != nil {
		return err
	}
	request := &emptypb.Empty{}
	request.ProtoReflect().SetUnknown(filters())
	if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) { // of which RecvMsg knows the cause
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		wake()
	}
}

// filters is a SubscribeRequest: its field 1 are filters, any of which may match
// (api/services/events/v1/events.proto).
func filters() []byte {
	var request []byte
	for _, topic := range topics {
		request = protowire.AppendTag(request, 1, protowire.BytesType)
		request = protowire.AppendString(request, fmt.Sprintf("namespace==k8s.io,topic==%q", topic))
	}
	return request
}
