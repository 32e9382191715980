package snapshot

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// addDownward writes values of the parent as the kubelet's CollectData does
// (pkg/volume/downwardapi/downwardapi.go, v1.37.2).
func (t *tree) addDownward(items []v1.DownwardAPIVolumeFile, from source, at string) error {
	for i, item := range items {
		at := fmt.Sprintf("%s.items[%d]", at, i)
		value, err := downwardValue(item, from, at)
		if err != nil {
			return err
		}
		if err := t.add(at+".path", item.Path, []byte(value), item.Mode, item.User); err != nil {
			return err
		}
	}
	return nil
}

// ownDownward tells whether the kubelet may write all of the files itself: of a
// checkpoint it finds the parent's value, or one that each pod has for itself.
func ownDownward(items []v1.DownwardAPIVolumeFile, from source, at string) (bool, error) {
	for i, item := range items {
		at := fmt.Sprintf("%s.items[%d]", at, i)
		switch {
		case item.FieldRef != nil:
			switch item.FieldRef.FieldPath {
			case "metadata.namespace", "metadata.uid":
				continue
			case "metadata.name":
				if !from.id.named() {
					continue
				}
			}
			return false, nil
		case item.ResourceFieldRef != nil:
			c, err := resourceContainer(item.ResourceFieldRef, from, at+".resourceFieldRef.containerName")
			if err != nil || !keptResource(item.ResourceFieldRef.Resource, c) {
				return false, err
			}
		default:
			return false, refused(Unsupported, at, "it names no source; remove it")
		}
	}
	return true, nil
}

func downwardValue(item v1.DownwardAPIVolumeFile, from source, at string) (string, error) {
	switch {
	case item.FieldRef != nil:
		value, ok := fieldText(item.FieldRef.FieldPath, from.pod)
		if !ok {
			return "", refused(Unsupported, at+".fieldRef.fieldPath", "%q is no field that a kubelet makes files of; remove it", item.FieldRef.FieldPath)
		}
		return value, nil
	case item.ResourceFieldRef != nil:
		at := at + ".resourceFieldRef"
		c, err := resourceContainer(item.ResourceFieldRef, from, at+".containerName")
		if err != nil {
			return "", err
		}
		return resourceText(item.ResourceFieldRef, c, at+".resource")
	}
	return "", refused(Unsupported, at, "it names no source; remove it")
}

// fieldText is what the kubelet makes a file of (pkg/fieldpath/fieldpath.go,
// v1.37.2). Of all annotations it writes two more, which are not the pod's but its
// own: when it saw the pod first, and from where.
func fieldText(field string, pod *v1.Pod) (string, bool) {
	switch field {
	case "metadata.name":
		return pod.Name, true
	case "metadata.namespace":
		return pod.Namespace, true
	case "metadata.uid":
		return string(pod.UID), true
	case "metadata.labels":
		return mapText(pod.Labels), true
	case "metadata.annotations":
		return mapText(pod.Annotations), true
	}
	one, ok := strings.CutSuffix(field, "']")
	path, key, found := strings.Cut(one, "['")
	switch {
	case ok && found && path == "metadata.labels":
		return pod.Labels[key], true
	case ok && found && path == "metadata.annotations":
		return pod.Annotations[key], true
	}
	return "", false
}

func mapText(m map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(lines, "\n")
}

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

// keptResource: limits of cpu and memory are kept, and for a limit that is not
// there the kubelet takes what the node has, of parent and checkpoint alike.
func keptResource(field string, c *v1.Container) bool {
	name, ok := strings.CutPrefix(field, "limits.")
	limit := c.Resources.Limits[v1.ResourceName(name)]
	return ok && (name == "cpu" || name == "memory" || limit.IsZero())
}

// resourceText is a quantity of the parent's container in units of the divisor,
// rounded up (pkg/api/v1/resource/helpers.go, v1.37.2).
func resourceText(r *v1.ResourceFieldSelector, c *v1.Container, at string) (string, error) {
	kind, word, _ := strings.Cut(r.Resource, ".")
	name, list := v1.ResourceName(word), c.Resources.Requests
	huge := strings.HasPrefix(word, v1.ResourceHugePagesPrefix)
	switch name {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage:
	default:
		if !huge {
			return "", refused(Unsupported, at, "%q is no resource that a kubelet makes files of; remove it", r.Resource)
		}
	}
	switch kind {
	case "requests":
	case "limits":
		list = c.Resources.Limits
		if limit := list[name]; limit.IsZero() && !huge {
			return "", refused(Unsupported, at, "the container has no limit of %s, and what the node has instead only its kubelet knows; set the limit", name)
		}
	default:
		return "", refused(Unsupported, at, "%q is neither limits nor requests; correct it", r.Resource)
	}
	divisor := r.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	quantity := list[name]
	if name == v1.ResourceCPU {
		return ceil(quantity.MilliValue(), divisor.MilliValue()), nil
	}
	return ceil(quantity.Value(), divisor.Value()), nil
}

func ceil(value, divisor int64) string {
	return strconv.FormatInt(int64(math.Ceil(float64(value)/float64(divisor))), 10)
}
