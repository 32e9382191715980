package critest

import (
	"context"
	"maps"
	"slices"
	"strings"

	images "github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// image is one that is present.
type image struct {
	refs   []string
	labels map[string]string
	info   string // of a verbose answer; "": the runtime tells nothing more
}

// Images sets the images that are present. The ID of each is "sha256:" and its name.
func (s *Server) Images(refs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.images)
	for _, ref := range refs {
		s.images["sha256:"+ref] = &image{refs: []string{ref}, labels: map[string]string{"io.cri-containerd.image": "managed"}}
	}
}

// Info sets what a verbose answer tells of an image, by its reference.
func (s *Server) Info(ref, info string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images["sha256:"+ref].info = info
}

// Refuse makes the question for that image, and no other one, an error.
func (s *Server) Refuse(ref string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = ref
}

// Labels returns those of an image.
func (s *Server) Labels(id string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.images[id]; i != nil {
		return maps.Clone(i.labels)
	}
	return nil
}

// Label sets a label of an image, as somebody else does.
func (s *Server) Label(id, key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images[id].labels[key] = value
}

// imageService is CRI's. It answers with the server's mutex held.
type imageService struct {
	runtimeapi.UnimplementedImageServiceServer
	*Server
}

func (s imageService) ImageStatus(_ context.Context, r *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	ref := r.GetImage().GetImage()
	if ref == s.refused && ref != "" {
		return nil, status.Errorf(codes.Unknown, "invalid reference format: %q", ref)
	}
	for id, i := range s.images {
		if id == ref || slices.Contains(i.refs, ref) {
			answer := &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{
				Id: id, RepoTags: i.refs, Pinned: i.labels["io.cri-containerd.pinned"] == "pinned",
			}}
			if r.Verbose && i.info != "" {
				answer.Info = map[string]string{"info": i.info}
			}
			return answer, nil
		}
	}
	return &runtimeapi.ImageStatusResponse{}, nil
}

// containerdImages is containerd's own service. It knows the images by their IDs
// alone, takes filters that compare one label, and counts its calls. It answers with
// the server's mutex held.
type containerdImages struct {
	images.UnimplementedImagesServer
	*Server
}

// PinCalls returns how often containerd's own image service was asked.
func (s *Server) PinCalls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pinCalls
}

func (s containerdImages) List(ctx context.Context, r *images.ListImagesRequest) (*images.ListImagesResponse, error) {
	s.pinCalls++
	if err := inNamespace(ctx); err != nil {
		return nil, err
	}
	var answer images.ListImagesResponse
	for id, i := range s.images {
		for _, filter := range r.Filters {
			label, value, _ := strings.Cut(strings.TrimPrefix(filter, "labels."), "==")
			if i.labels[strings.Trim(label, `"`)] == value {
				answer.Images = append(answer.Images, &images.Image{Name: id, Labels: i.labels})
			}
		}
	}
	return &answer, nil
}

func (s containerdImages) Get(ctx context.Context, r *images.GetImageRequest) (*images.GetImageResponse, error) {
	s.pinCalls++
	if err := inNamespace(ctx); err != nil {
		return nil, err
	}
	i := s.images[r.GetName()]
	if i == nil {
		return nil, status.Errorf(codes.NotFound, "image %q: not found", r.GetName())
	}
	return &images.GetImageResponse{Image: &images.Image{
		Name: r.Name, Labels: i.labels, Target: &types.Descriptor{Digest: r.Name},
	}}, nil
}

// Update changes the labels that the mask names; an empty value removes one
// (containerd v2.4.2 core/metadata/images.go, core/metadata/boltutil/helpers.go). An
// image without its target is the end of containerd.
func (s containerdImages) Update(ctx context.Context, r *images.UpdateImageRequest) (*images.UpdateImageResponse, error) {
	s.pinCalls++
	if err := inNamespace(ctx); err != nil {
		return nil, err
	}
	i := s.images[r.GetImage().GetName()]
	if i == nil {
		return nil, status.Errorf(codes.NotFound, "image %q: not found", r.GetImage().GetName())
	}
	if len(r.GetUpdateMask().GetPaths()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "without a mask the whole image would be replaced")
	}
	if r.Image.GetTarget().GetDigest() != r.Image.GetName() {
		return nil, status.Error(codes.Internal, "containerd v2.4.2 panics here: the image has no target, or not its own")
	}
	for _, path := range r.UpdateMask.Paths {
		label, ok := strings.CutPrefix(path, "labels.")
		if !ok {
			return nil, status.Errorf(codes.InvalidArgument, "cannot update %q field", path)
		}
		i.labels[label] = r.Image.Labels[label]
		if i.labels[label] == "" {
			delete(i.labels, label)
		}
	}
	return &images.UpdateImageResponse{Image: &images.Image{Name: r.Image.Name, Labels: i.labels}}, nil
}

func inNamespace(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if !slices.Equal(md.Get("containerd-namespace"), []string{"k8s.io"}) {
		return status.Error(codes.FailedPrecondition, "namespace is required")
	}
	return nil
}
