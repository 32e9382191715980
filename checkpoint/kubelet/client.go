package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	pods "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// Regime tells whether this kubelet process has ever had its pods from the API
// server. Until it has, it starts static pods but stops none.
type Regime int

// The regimes. A kubelet never goes back from Synced, only its successor does.
const (
	Unknown Regime = iota
	Synced
	Unsynced
)

func (r Regime) String() string {
	switch r {
	case Unknown:
		return "unknown"
	case Synced:
		return "synced"
	case Unsynced:
		return "unsynced"
	}
	return "invalid"
}

// View is what the kubelet said.
type View struct {
	Regime Regime
	Why    string    // which source said so, or why none did
	Knows  []PodName // the pods that it runs or is about to: admitted and not ended
	PID    int       // of the kubelet; 0: in a process namespace that is not seen
}

// Client asks the kubelet through the two sockets that need no credentials and no
// API server. It may be used by several goroutines.
type Client struct {
	node      string
	resources socket
	pods      socket
}

type socket struct {
	path string
	*grpc.ClientConn
}

// NewClient returns a client of the kubelet whose root directory is dir and whose
// node is named node. It does not connect: the kubelet may come later, go and come
// back.
func NewClient(dir, node string) (*Client, error) {
	// k8s.io/kubernetes@v1.37.2 pkg/kubelet/kubeletconfig/defaults.go, and the names
	// of the sockets in pkg/kubelet/apis/{podresources,pods}/constants.go.
	resources, err := newSocket(filepath.Join(dir, "pod-resources", "kubelet.sock"))
	if err != nil {
		return nil, err
	}
	pods, err := newSocket(filepath.Join(dir, "pods-api", "pods-api.sock"))
	if err != nil {
		return nil, err
	}
	return &Client{node: node, resources: resources, pods: pods}, nil
}

func newSocket(path string) (socket, error) {
	target := url.URL{Scheme: "unix", Path: path}
	conn, err := grpc.NewClient(target.String(),
		grpc.WithTransportCredentials(newPeerCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)),
		grpc.WithConnectParams(grpc.ConnectParams{
			// A kubelet that is back is to be seen within a beat.
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return socket{}, fmt.Errorf("kubelet socket %s: %w", path, err)
	}
	return socket{path, conn}, nil
}

// Close ends the connections. Calls under way fail.
func (c *Client) Close() error { return errors.Join(c.resources.Close(), c.pods.Close()) }

// View asks the kubelet which pods it knows, and in which regime it is. An error
// means that the kubelet did not say which pods it knows. Where the Pods API, which
// is on by default from 1.37, does not answer, the regime may stay Unknown.
func (c *Client) View(ctx context.Context) (View, error) {
	var from peer.Peer
	answer, err := podresources.NewPodResourcesListerClient(c.resources).
		List(ctx, &podresources.ListPodResourcesRequest{}, grpc.Peer(&from))
	if err != nil {
		return View{}, fmt.Errorf("ask the kubelet at %s: %w", c.resources.path, c.resources.cause(err))
	}
	v := View{PID: pid(from)}
	for _, p := range answer.PodResources {
		v.Knows = append(v.Knows, PodName{Namespace: p.Namespace, Name: p.Name})
	}
	if i := slices.IndexFunc(v.Knows, c.fromAPI); i >= 0 {
		v.Regime = Synced
		v.Why = fmt.Sprintf("podresources: lists %s/%s, which is no static pod", v.Knows[i].Namespace, v.Knows[i].Name)
		return v, nil
	}
	v.Regime, v.Why = c.regime(ctx, v.PID)
	return v, nil
}

// Await returns when the connection that the last View came by has ended, as it does
// with the kubelet's process, or when ctx has. It sends nothing.
func (c *Client) Await(ctx context.Context) { c.resources.WaitForStateChange(ctx, connectivity.Ready) }

// fromAPI tells whether only the API server can have named the pod: the name of a
// static one ends in the node's (pkg/kubelet/config/common.go, generatePodName). What
// manifests there are is no help, since the kubelet still knows the pod of one that
// was taken away for up to 20 seconds.
func (c *Client) fromAPI(p PodName) bool { return !strings.HasSuffix(p.Name, nodeSuffix(c.node)) }

// nobody is the UID of no pod.
const nobody = "pod-checkpointer.io"

// regime asks the Pods API for a pod that there is not: the smallest question whose
// answer tells. It refuses all of them with FailedPrecondition until all sources of
// pods are ready, and looks only then, for NotFound
// (k8s.io/kubernetes@v1.37.2 pkg/kubelet/apis/pods/server.go, validateReady, GetPod).
// It is asked only where podresources left the matter open, since the kubelet logs
// every such question.
func (c *Client) regime(ctx context.Context, asked int) (Regime, string) {
	var from peer.Peer
	_, err := pods.NewPodsClient(c.pods).GetPod(ctx, &pods.GetPodRequest{PodUID: nobody}, grpc.Peer(&from))
	var regime Regime
	var why string
	switch status.Code(err) {
	case codes.OK, codes.NotFound:
		regime, why = Synced, "pods API: answers"
	case codes.FailedPrecondition:
		regime, why = Unsynced, "pods API: "+status.Convert(err).Message()
	default:
		return Unknown, fmt.Sprintf("podresources: lists static pods only; pods API at %s: %v", c.pods.path, c.pods.cause(err))
	}
	if answered := pid(from); answered != asked {
		return Unknown, fmt.Sprintf("the kubelet was restarted meanwhile: process %d answered, then %d", asked, answered)
	}
	return regime, why
}

// cause says in an operator's words what a call came to.
func (s socket) cause(err error) error {
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		return fmt.Errorf("no answer: %w", context.DeadlineExceeded)
	case codes.Canceled:
		return context.Canceled
	case codes.Unavailable:
		if _, stat := os.Stat(s.path); errors.Is(stat, fs.ErrNotExist) {
			return fmt.Errorf("no socket: %w", fs.ErrNotExist)
		}
	}
	return err
}
