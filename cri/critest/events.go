package critest

import (
	"fmt"
	"slices"

	events "github.com/containerd/containerd/api/services/events/v1"
	"github.com/containerd/containerd/api/types"
)

// eventService is containerd's. It takes the filters that name one topic.
type eventService struct {
	events.UnimplementedEventsServer
	server *Server
}

// backlog is how many events a subscriber may leave unread.
const backlog = 100

// Subscribe sends what Publish says until the client or the server is gone.
func (s eventService) Subscribe(r *events.SubscribeRequest, stream events.Events_SubscribeServer) error {
	topics := make(chan string, backlog)
	s.server.mu.Lock()
	s.server.heard[topics] = r.Filters
	s.server.mu.Unlock()
	defer func() {
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		delete(s.server.heard, topics)
	}()
	for {
		select {
		case topic := <-topics:
			if err := stream.Send(&types.Envelope{Namespace: "k8s.io", Topic: topic}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// Publish tells the subscribers of a topic that something happened.
func (s *Server) Publish(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for subscriber, filters := range s.heard {
		if slices.Contains(filters, fmt.Sprintf("namespace==k8s.io,topic==%q", topic)) {
			subscriber <- topic
		}
	}
}

// Subscribers returns how many clients listen to events.
func (s *Server) Subscribers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.heard)
}
