package critest

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeService answers with the server's mutex held.
type runtimeService struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	*Server
}

func (s Sandbox) wire() *runtimeapi.PodSandbox {
	state := runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	if s.Ready {
		state = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return &runtimeapi.PodSandbox{
		Id:          s.ID,
		Metadata:    &runtimeapi.PodSandboxMetadata{Namespace: s.Namespace, Name: s.Name, Uid: s.UID, Attempt: s.Attempt},
		State:       state,
		CreatedAt:   s.CreatedAt.UnixNano(),
		Labels:      s.Labels,
		Annotations: s.Annotations,
	}
}

func (c Container) wire(s Sandbox) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id:           c.ID,
		PodSandboxId: s.ID,
		Metadata:     &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: c.Attempt},
		Image:        &runtimeapi.ImageSpec{Image: c.ImageRef, UserSpecifiedImage: c.Image},
		ImageRef:     c.ImageRef,
		State:        c.State,
		CreatedAt:    c.CreatedAt.UnixNano(),
		Labels:       s.kubelets(),
	}
}

// kubelets are the labels that the kubelet puts on sandbox and container.
func (s Sandbox) kubelets() map[string]string {
	return map[string]string{
		"io.kubernetes.pod.namespace": s.Namespace,
		"io.kubernetes.pod.name":      s.Name,
		"io.kubernetes.pod.uid":       s.UID,
	}
}

func (s Sandbox) selected(by map[string]string) bool {
	labels := s.kubelets()
	for key, value := range by {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func (s runtimeService) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	var answer runtimeapi.ListPodSandboxResponse
	for _, p := range s.pods {
		sandbox, state := p.wire(), r.GetFilter().GetState()
		if p.selected(r.GetFilter().GetLabelSelector()) && (state == nil || state.State == sandbox.State) {
			answer.Items = append(answer.Items, sandbox)
		}
	}
	return &answer, nil
}

func (s runtimeService) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	var answer runtimeapi.ListContainersResponse
	for _, p := range s.pods {
		if !p.selected(r.GetFilter().GetLabelSelector()) {
			continue
		}
		for _, c := range p.containers {
			answer.Containers = append(answer.Containers, c.wire(p.Sandbox))
		}
	}
	return &answer, nil
}

func (s runtimeService) StopContainer(_ context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	for _, p := range s.pods {
		for i := range p.containers {
			if c := &p.containers[i]; c.ID == r.ContainerId {
				c.State = runtimeapi.ContainerState_CONTAINER_EXITED
				s.stops = append(s.stops, Stop{ID: c.ID, Grace: time.Duration(r.Timeout) * time.Second})
				return &runtimeapi.StopContainerResponse{}, nil
			}
		}
	}
	return nil, status.Errorf(codes.NotFound, "container %q: not found", r.ContainerId)
}

func (s runtimeService) StopPodSandbox(_ context.Context, r *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	i := slices.IndexFunc(s.pods, func(p pod) bool { return p.ID == r.PodSandboxId })
	if i < 0 {
		return nil, status.Errorf(codes.NotFound, "sandbox %q: not found", r.PodSandboxId)
	}
	s.pods[i].Ready = false
	for j := range s.pods[i].containers {
		s.pods[i].containers[j].State = runtimeapi.ContainerState_CONTAINER_EXITED
	}
	s.stops = append(s.stops, Stop{ID: r.PodSandboxId})
	return &runtimeapi.StopPodSandboxResponse{}, nil
}
