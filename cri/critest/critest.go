// Package critest is a container runtime for tests: a real gRPC server on a unix
// socket, whose sandboxes, containers and images are what the test says.
package critest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	events "github.com/containerd/containerd/api/services/events/v1"
	images "github.com/containerd/containerd/api/services/images/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sandbox is one sandbox. The zero value of its state is not ready, unlike on
// the wire.
type Sandbox struct {
	ID, Namespace, Name, UID string
	Attempt                  uint32
	Ready                    bool
	CreatedAt                time.Time
	Labels, Annotations      map[string]string
}

// Container is one container of a sandbox. The zero value of its state is
// created, as on the wire.
type Container struct {
	ID, Name, Image, ImageRef string
	Attempt                   uint32
	State                     runtimeapi.ContainerState
	CreatedAt                 time.Time
}

type pod struct {
	Sandbox
	containers []Container
}

// Stop is an order to stop that the server got.
type Stop struct {
	ID    string
	Grace time.Duration // of a container; a sandbox has none
}

// Server is the runtime. All methods may be used by several goroutines.
type Server struct {
	t      testing.TB
	socket string

	mu       sync.Mutex
	grpc     *grpc.Server  // nil while down
	served   chan struct{} // closed once it no longer listens
	pods     []pod
	images   map[string]*image // by ID
	refused  string            // an image of which no question is answered
	pinCalls int
	stops    []Stop
	calls    int           // under way
	most     int           // that were under way at once
	resumed  chan struct{} // closed unless it hangs
	fail     codes.Code
	heard    map[chan string][]string // the filters of each subscriber of events
}

// Start returns a runtime without pods that is up. It goes down with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri") //nolint:usetesting // the path of a socket must be short
	require.NoError(t, err)
	s := &Server{t: t, socket: filepath.Join(dir, "cri.sock"), resumed: make(chan struct{}), heard: map[chan string][]string{}, images: map[string]*image{}}
	close(s.resumed)
	t.Cleanup(func() {
		s.Down()
		require.NoError(t, os.RemoveAll(dir))
	})
	s.Up()
	return s
}

// Endpoint is what a client is to be given.
func (s *Server) Endpoint() string { return "unix://" + s.socket }

// Up makes the server listen, if it is down. What it holds is kept.
func (s *Server) Up() {
	s.serve(func(g *grpc.Server) {
		s.registerV1(g)
		events.RegisterEventsServer(g, eventService{server: s})
		images.RegisterImagesServer(g, containerdImages{Server: s})
	})
}

// UpWithoutEvents makes the server listen, if it is down, without containerd's own
// services, of events and images: as CRI-O does.
func (s *Server) UpWithoutEvents() { s.serve(s.registerV1) }

func (s *Server) registerV1(g *grpc.Server) {
	runtimeapi.RegisterRuntimeServiceServer(g, runtimeService{Server: s})
	runtimeapi.RegisterImageServiceServer(g, imageService{Server: s})
}

// UpWithoutV1 makes the server listen, if it is down, with none of CRI's
// services: as one does that is too old, or that has CRI switched off.
func (s *Server) UpWithoutV1() { s.serve(func(*grpc.Server) {}) }

func (s *Server) serve(register func(*grpc.Server)) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grpc != nil {
		return
	}
	l, err := net.Listen("unix", s.socket)
	require.NoError(s.t, err)
	s.grpc = grpc.NewServer(grpc.UnaryInterceptor(s.intercept))
	register(s.grpc)
	s.served = make(chan struct{})
	go func(g *grpc.Server, served chan<- struct{}) {
		defer close(served)
		_ = g.Serve(l) // until Down
	}(s.grpc, s.served)
}

// Down closes the socket and ends all calls.
func (s *Server) Down() {
	s.mu.Lock()
	g, served := s.grpc, s.served
	s.grpc = nil
	s.mu.Unlock()
	if g != nil {
		g.Stop()
		<-served
	}
}

// Hang lets no call be answered until Resume. One that its client gave up ends.
func (s *Server) Hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.resumed:
		s.resumed = make(chan struct{})
	default: // it hangs already
	}
}

// Resume answers the calls that Hang held back.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.resumed: // it does not hang
	default:
		close(s.resumed)
	}
}

// Fail makes every call fail with that code; codes.OK ends it.
func (s *Server) Fail(code codes.Code) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = code
}

// Calls returns how many calls are under way.
func (s *Server) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// MostCalls returns how many calls were ever under way at once.
func (s *Server) MostCalls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// Stops returns the orders to stop, oldest first.
func (s *Server) Stops() []Stop {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.stops)
}

// Run adds a sandbox and its containers, in place of what had its id.
func (s *Server) Run(sandbox Sandbox, containers ...Container) {
	s.Remove(sandbox.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = append(s.pods, pod{sandbox, slices.Clone(containers)})
}

// Remove removes a sandbox and its containers.
func (s *Server) Remove(sandbox string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = slices.DeleteFunc(s.pods, func(p pod) bool { return p.ID == sandbox })
}

// intercept counts the call, and lets it hang or fail.
func (s *Server) intercept(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	s.mu.Lock()
	s.calls++
	s.most = max(s.most, s.calls)
	resumed := s.resumed
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls--
	}()
	select {
	case <-resumed:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != codes.OK {
		return nil, status.Error(s.fail, "as the test said")
	}
	return handle(ctx, req)
}
