package snapshot

import (
	"math"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func resourceContainer(r *v1.ResourceFieldSelector, from source, at string) (*v1.Container, error) {
	for _, containers := range [][]v1.Container{from.pod.Spec.Containers, from.pod.Spec.InitContainers} {
		for i := range containers {
			if containers[i].Name == r.ContainerName {
				return &containers[i], nil
			}
		}
	}
	return nil, refused(Unsupported, at, "there is no container %q; correct the name", r.ContainerName)
}

// partResource parts a field such as limits.cpu. What a kubelet has no words for is
// refused (pkg/api/v1/resource/helpers.go, v1.37.2).
func partResource(field, at string) (limits bool, name v1.ResourceName, err error) {
	kind, word, _ := strings.Cut(field, ".")
	switch name = v1.ResourceName(word); {
	case kind != "limits" && kind != "requests":
		return false, "", refused(Unsupported, at, "%q is neither limits nor requests; correct it", field)
	case name != v1.ResourceCPU && name != v1.ResourceMemory && name != v1.ResourceEphemeralStorage && !isHuge(name):
		return false, "", refused(Unsupported, at, "%q is nothing that a kubelet tells a pod; remove it", field)
	}
	return kind == "limits", name, nil
}

func isHuge(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// keptResource tells whether a kubelet finds the same of a checkpoint's container as
// of its parent's, c. Limits of cpu and memory are kept, those of the whole pod are not;
// for a limit that is nowhere it takes what the node has.
func keptResource(r *v1.ResourceFieldSelector, c *v1.Container, from source, at string) (bool, error) {
	limits, name, err := partResource(r.Resource, at)
	limit, ofPod := c.Resources.Limits[name], podLimit(from.pod, name)
	switch {
	case !limits || err != nil:
		return false, err
	case limit.IsZero():
		return ofPod.IsZero(), nil
	}
	return name == v1.ResourceCPU || name == v1.ResourceMemory, nil
}

// podLimit is what a kubelet tells a container that has no limit of its own
// (pkg/kubelet/kubelet_resources.go, defaultPodLimitsForDownwardAPI, v1.37.2 and v1.34.4).
func podLimit(pod *v1.Pod, name v1.ResourceName) resource.Quantity {
	if pod.Spec.Resources == nil || name != v1.ResourceCPU && name != v1.ResourceMemory {
		return resource.Quantity{}
	}
	return pod.Spec.Resources.Limits[name]
}

// resourceText is a quantity of the parent's container in units of the divisor,
// rounded up, as the kubelet writes it.
func resourceText(r *v1.ResourceFieldSelector, c *v1.Container, from source, at string) (string, error) {
	limits, name, err := partResource(r.Resource, at)
	if err != nil {
		return "", err
	}
	list := c.Resources.Requests
	if limits {
		list = c.Resources.Limits
	}
	quantity := list[name]
	if limits && quantity.IsZero() {
		quantity = podLimit(from.pod, name)
	}
	if limits && quantity.IsZero() && !isHuge(name) {
		return "", refused(Unsupported, at, "the container has no limit of %s, and what the node has instead only its kubelet knows; set the limit", name)
	}
	divisor := r.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == v1.ResourceCPU {
		return ceil(quantity.MilliValue(), divisor.MilliValue()), nil
	}
	return ceil(quantity.Value(), divisor.Value()), nil
}

func ceil(value, divisor int64) string {
	return strconv.FormatInt(int64(math.Ceil(float64(value)/float64(divisor))), 10)
}
