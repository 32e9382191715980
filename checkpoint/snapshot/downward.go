package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
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
			at := at + ".resourceFieldRef"
			c, err := resourceContainer(item.ResourceFieldRef, from, at+".containerName")
			if err != nil {
				return false, err
			}
			if kept, err := keptResource(item.ResourceFieldRef, c, from, at+".resource"); !kept || err != nil {
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
		return resourceText(item.ResourceFieldRef, c, from, at+".resource")
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
