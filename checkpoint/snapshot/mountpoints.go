package snapshot

import (
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// MountPoints lists, by payload volume, the directories in it on which a container
// mounts another volume. Who stages the payload must make them, since a runtime can't
// in a volume that is read-only. The kubelet makes them in volumes of its own, and not
// in a directory of the host (pkg/volume/util/nested_volumes.go, v1.37.2). An error is
// *Unprotectable.
func MountPoints(sanitized *v1.Pod) (map[string][]string, error) {
	points := map[string][]string{}
	for _, v := range sanitized.Spec.Volumes {
		if !isPayload(v) {
			continue
		}
		for _, c := range allContainers(&sanitized.Spec) {
			within, err := mountedIn(v.Name, c)
			if err != nil {
				return nil, err
			}
			points[v.Name] = append(points[v.Name], within...)
		}
		slices.Sort(points[v.Name])
		points[v.Name] = slices.Compact(points[v.Name])
	}
	return points, nil
}

func mountedIn(volume string, c containerAt) ([]string, error) {
	var points []string
	for _, outer := range c.VolumeMounts {
		if outer.Name != volume {
			continue
		}
		for i, inner := range c.VolumeMounts {
			rest, below := beneath(inner.MountPath, outer.MountPath)
			if !below || slices.ContainsFunc(c.VolumeMounts, func(between v1.VolumeMount) bool {
				_, outside := beneath(between.MountPath, outer.MountPath)
				_, inside := beneath(inner.MountPath, between.MountPath)
				return outside && inside
			}) {
				continue
			}
			point, ok := cleanPath(rest)
			if !ok {
				return nil, refused(UnsafePath, fmt.Sprintf("%s.volumeMounts[%d].mountPath", c.at, i),
					"%q is no directory that can be in the volume %q; choose another one", inner.MountPath, volume)
			}
			points = append(points, point)
		}
	}
	return points, nil
}

func beneath(file, dir string) (rest string, ok bool) {
	return strings.CutPrefix(path.Clean(file), strings.TrimSuffix(path.Clean(dir), "/")+"/")
}
