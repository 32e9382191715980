package cri

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxAnswer is what the kubelet takes too
// (k8s.io/cri-client@v0.37.2 pkg/remote_runtime.go, maxMsgSize).
const maxAnswer = 16 << 20

// Client asks one runtime. It may be used by several goroutines: questions wait
// for each other, so that a runtime that hangs has one of ours to answer and not
// one more with each beat. Orders to stop do not wait, since one takes as long as
// its grace and the node must be seen meanwhile.
type Client struct {
	endpoint string
	socket   string
	conn     *grpc.ClientConn
	runtime  runtimeapi.RuntimeServiceClient
	images   runtimeapi.ImageServiceClient
	asking   chan struct{} // holds one token while a question is under way
}

// New returns a client of the runtime at endpoint: unix:///path/of/socket, or
// that path alone. It does not connect: the runtime may come later, go and come
// back.
func New(endpoint string) (*Client, error) {
	socket, err := parse(endpoint)
	if err != nil {
		return nil, err
	}
	target := url.URL{Scheme: "unix", Path: socket}
	conn, err := grpc.NewClient(target.String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{
			// A runtime that is back is to be seen within a beat.
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("CRI endpoint %q: %w", endpoint, err)
	}
	return &Client{
		endpoint: endpoint,
		socket:   socket,
		conn:     conn,
		runtime:  runtimeapi.NewRuntimeServiceClient(conn),
		images:   runtimeapi.NewImageServiceClient(conn),
		asking:   make(chan struct{}, 1),
	}, nil
}

// parse returns the path of the endpoint's socket.
func parse(endpoint string) (string, error) {
	socket := strings.TrimPrefix(endpoint, "unix://")
	if !filepath.IsAbs(socket) {
		return "", fmt.Errorf("CRI endpoint %q: want unix:///path/of/socket or an absolute path", endpoint)
	}
	return socket, nil
}

// Close ends the connection. Calls under way fail.
func (c *Client) Close() error { return c.conn.Close() }

// Pods returns the pods of those namespaces, of all where none is named, sorted by
// namespace and name. The runtime filters, so that the pods of other namespaces
// cost next to nothing.
func (c *Client) Pods(ctx context.Context, namespaces ...string) ([]Pod, error) {
	done, err := c.ask(ctx)
	if err != nil {
		return nil, c.explain("list pods", err)
	}
	defer done()
	if len(namespaces) == 0 {
		return c.list(ctx, nil)
	}
	var pods []Pod
	for _, namespace := range slices.Compact(slices.Sorted(slices.Values(namespaces))) {
		// A label of the kubelet, on sandboxes and containers alike
		// (k8s.io/kubelet@v0.37.2 pkg/types/labels.go).
		some, err := c.list(ctx, map[string]string{"io.kubernetes.pod.namespace": namespace})
		if err != nil {
			return nil, err
		}
		pods = append(pods, some...)
	}
	return pods, nil
}

// list returns the pods that carry these labels.
func (c *Client) list(ctx context.Context, labels map[string]string) ([]Pod, error) {
	// Containers first: then none can appear whose sandbox is too new for the
	// list of sandboxes.
	containers, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: labels}})
	if err != nil {
		return nil, c.explain("list containers", err)
	}
	sandboxes, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: labels}})
	if err != nil {
		return nil, c.explain("list pod sandboxes", err)
	}
	return group(sandboxes.Items, containers.Containers), nil
}

// Sandboxes returns the pods of all namespaces that are ready, in the order of Pods,
// without their containers.
func (c *Client) Sandboxes(ctx context.Context) ([]Pod, error) {
	done, err := c.ask(ctx)
	if err != nil {
		return nil, c.explain("list pod sandboxes", err)
	}
	defer done()
	answer, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		return nil, c.explain("list pod sandboxes", err)
	}
	return group(answer.Items, nil), nil
}

// StopContainer sends SIGTERM, and SIGKILL after grace, which is rounded up to
// whole seconds; with grace 0 it sends SIGKILL alone. It returns once the
// container has ended. A container that is not there is no error. Where ctx ends
// before grace does, the runtime may never come to its SIGKILL.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	seconds := int64((grace + time.Second - 1) / time.Second)
	_, err := c.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: seconds})
	if absent(err) {
		return nil
	}
	return c.explain("stop container "+id, err)
}

// StopSandbox ends a sandbox and kills, without any grace, what still runs in
// it. A sandbox that is not there is no error.
func (c *Client) StopSandbox(ctx context.Context, id string) error {
	_, err := c.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	if absent(err) {
		return nil
	}
	return c.explain("stop pod sandbox "+id, err)
}

// ask waits until no other question is under way.
func (c *Client) ask(ctx context.Context) (done func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case c.asking <- struct{}{}:
		return func() { <-c.asking }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
