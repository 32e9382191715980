package cri

import (
	"cmp"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// State is what the runtime says of a container. The zero value is Unknown.
type State int

// The states of a container. Unknown is also what a runtime says of one that
// it lost track of: it may run.
const (
	Unknown State = iota
	Created
	Running
	Exited
)

func (s State) String() string {
	switch s {
	case Unknown:
		return "unknown"
	case Created:
		return "created"
	case Running:
		return "running"
	case Exited:
		return "exited"
	}
	return "invalid"
}

// Container is one container of a pod. A restart makes another one, with
// another ID: nothing else tells reliably of a restart.
type Container struct {
	ID       string
	Name     string // in the pod's spec
	Image    string // as the pod names it, where the runtime kept that
	ImageRef string // what it resolved to
	Attempt  uint32 // may begin again at 0 once the dead ones are cleaned up
	State    State

	CreatedAt time.Time // the wall clock of the node at that time
}

// Sandbox is one start of a pod.
type Sandbox struct {
	ID          string
	Attempt     uint32
	Ready       bool
	CreatedAt   time.Time
	Labels      map[string]string // all labels of the pod when the sandbox was made
	Annotations map[string]string // all annotations of the pod when the sandbox was made
}

// Pod is all that the runtime has of one pod UID. After a reboot the sandboxes
// from before it are still listed: only Ready and the state of a container say
// what is there now.
type Pod struct {
	Namespace string
	Name      string // with the node's name at its end, if the pod is static
	UID       string // for a static pod that of its manifest
	Source    string // annotation kubernetes.io/config.source: api, file or http

	Sandboxes []Sandbox // newest first, by attempt, then creation; at least one

	// Containers holds the newest one of each name, newest first: by sandbox,
	// then attempt, then creation. Older ones are history.
	Containers []Container
}

// Container returns the newest container of that name, and whether there is one.
func (p Pod) Container(name string) (Container, bool) {
	i := slices.IndexFunc(p.Containers, func(c Container) bool { return c.Name == name })
	if i < 0 {
		return Container{}, false
	}
	return p.Containers[i], true
}

// Ready tells whether the newest sandbox is ready. It says nothing of containers.
func (p Pod) Ready() bool { return len(p.Sandboxes) > 0 && p.Sandboxes[0].Ready }

// Annotation returns that of the newest sandbox, or "".
func (p Pod) Annotation(key string) string {
	if len(p.Sandboxes) == 0 {
		return ""
	}
	return p.Sandboxes[0].Annotations[key]
}

// sourceAnnotation stands on every pod of a kubelet
// (k8s.io/kubernetes@v1.37.2 pkg/kubelet/types/pod_update.go).
const sourceAnnotation = "kubernetes.io/config.source"

// group sorts by pod, then namespace and name, so that equal answers give equal
// pods. Containers whose sandbox is not listed have been removed since.
func group(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) []Pod {
	slices.SortFunc(sandboxes, func(a, b *runtimeapi.PodSandbox) int {
		return cmp.Or(
			cmp.Compare(a.GetMetadata().GetNamespace(), b.GetMetadata().GetNamespace()),
			cmp.Compare(a.GetMetadata().GetName(), b.GetMetadata().GetName()),
			cmp.Compare(a.GetMetadata().GetUid(), b.GetMetadata().GetUid()),
			newer(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt(), a.CreatedAt, b.CreatedAt),
			cmp.Compare(a.Id, b.Id))
	})
	slices.SortFunc(containers, func(a, b *runtimeapi.Container) int {
		return cmp.Or(
			newer(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt(), a.CreatedAt, b.CreatedAt),
			cmp.Compare(a.Id, b.Id))
	})
	bySandbox := map[string][]Container{}
	for _, c := range containers {
		bySandbox[c.PodSandboxId] = append(bySandbox[c.PodSandboxId], container(c))
	}

	var pods []Pod
	for _, s := range sandboxes {
		uid := s.GetMetadata().GetUid()
		if len(pods) == 0 || pods[len(pods)-1].UID != uid {
			pods = append(pods, Pod{
				Namespace: s.GetMetadata().GetNamespace(),
				Name:      s.GetMetadata().GetName(),
				UID:       uid,
				Source:    s.Annotations[sourceAnnotation],
			})
		}
		p := &pods[len(pods)-1]
		p.Sandboxes = append(p.Sandboxes, sandbox(s))
		for _, c := range bySandbox[s.Id] {
			if _, known := p.Container(c.Name); !known {
				p.Containers = append(p.Containers, c)
			}
		}
	}
	return pods
}

// newer orders as the kubelet does: by attempt, then by creation, newest first
// (k8s.io/kubernetes@v1.37.2 pkg/kubelet/kuberuntime/helpers.go, podSandboxByCreatedThenID).
func newer(attemptA, attemptB uint32, createdA, createdB int64) int {
	return cmp.Or(cmp.Compare(attemptB, attemptA), cmp.Compare(createdB, createdA))
}

func sandbox(s *runtimeapi.PodSandbox) Sandbox {
	return Sandbox{
		ID:          s.Id,
		Attempt:     s.GetMetadata().GetAttempt(),
		Ready:       ready(s.State),
		CreatedAt:   time.Unix(0, s.CreatedAt),
		Labels:      s.Labels,
		Annotations: s.Annotations,
	}
}

func container(c *runtimeapi.Container) Container {
	return Container{
		ID:        c.Id,
		Name:      c.GetMetadata().GetName(),
		Image:     cmp.Or(c.GetImage().GetUserSpecifiedImage(), c.GetImage().GetImage()),
		ImageRef:  c.ImageRef,
		Attempt:   c.GetMetadata().GetAttempt(),
		State:     state(c.State),
		CreatedAt: time.Unix(0, c.CreatedAt),
	}
}

// ready: in runtime.v1 the zero value means ready, so that what is not set
// counts as ready.
func ready(s runtimeapi.PodSandboxState) bool {
	switch s {
	case runtimeapi.PodSandboxState_SANDBOX_READY:
		return true
	case runtimeapi.PodSandboxState_SANDBOX_NOTREADY:
		return false
	}
	return false // no state of runtime.v1
}

func state(s runtimeapi.ContainerState) State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED: // the zero value of runtime.v1
		return Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return Exited
	case runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		return Unknown
	}
	return Unknown // no state of runtime.v1
}
