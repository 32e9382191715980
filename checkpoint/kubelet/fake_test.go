package kubelet

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	pods "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// fake is the two sockets of a kubelet, served as the kubelet does.
type fake struct {
	podresources.UnimplementedPodResourcesListerServer
	pods.UnimplementedPodsServer
	dir string

	mu      sync.Mutex
	knows   []PodName
	synced  bool
	padding string        // in every answer of podresources
	held    chan struct{} // not nil: no answer until it is closed
	asked   int           // questions to the Pods API
}

func newFake(t *testing.T) *fake {
	t.Helper()
	dir, err := os.MkdirTemp("", "kubelet") //nolint:usetesting // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	for _, sub := range []string{"pod-resources", "pods-api"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	return &fake{dir: dir}
}

func (f *fake) podResources(t *testing.T) (stop func()) {
	return serve(t, filepath.Join(f.dir, "pod-resources", "kubelet.sock"), func(g *grpc.Server) {
		podresources.RegisterPodResourcesListerServer(g, f)
	})
}

func (f *fake) podsAPI(t *testing.T) (stop func()) {
	return serve(t, filepath.Join(f.dir, "pods-api", "pods-api.sock"), func(g *grpc.Server) {
		pods.RegisterPodsServer(g, f)
	})
}

// serve listens until stop is called, or until the test ends.
func serve(t *testing.T, path string, register func(*grpc.Server)) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	g := grpc.NewServer()
	register(g)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.Serve(l) // until stop
	}()
	stop = sync.OnceFunc(func() {
		g.Stop()
		<-served
	})
	t.Cleanup(stop)
	return stop
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) wait(ctx context.Context) {
	f.mu.Lock()
	held := f.held
	f.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
		}
	}
}

func (f *fake) List(ctx context.Context, _ *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	f.wait(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	var answer podresources.ListPodResourcesResponse
	for _, p := range f.knows {
		answer.PodResources = append(answer.PodResources, &podresources.PodResources{
			Namespace: p.Namespace, Name: p.Name,
			Containers: []*podresources.ContainerResources{{Name: "c" + f.padding}},
		})
	}
	return &answer, nil
}

func (f *fake) GetPod(ctx context.Context, r *pods.GetPodRequest) (*pods.GetPodResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if !f.synced {
		return nil, status.Error(codes.FailedPrecondition, "Kubelet is initializing")
	}
	return nil, status.Errorf(codes.NotFound, "pod with UID %s not found", r.PodUID)
}
