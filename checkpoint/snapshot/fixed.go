package snapshot

import (
	"path"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// fixed are the payload volumes whose files count from the start of a container on.
// Of all others the kubelet turns ..data while the container runs
// (k8s.io/kubernetes v1.37.2, pkg/volume/util/atomic_writer.go).
func fixed(spec *v1.PodSpec) []string {
	var names []string
	for _, v := range spec.Volumes {
		once := func(c containerAt) bool { return readOnce(c.Container, v.Name) }
		if isPayload(v) && slices.ContainsFunc(allContainers(spec), once) {
			names = append(names, v.Name)
		}
	}
	return names
}

// readOnce: a subPath is a mount of the very file that was there at the start, and
// lock-exec reads the environment before it becomes the program.
func readOnce(c *v1.Container, volume string) bool {
	line, _ := launchLine(c)
	return slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool {
		env := func(dir string) bool { return within(path.Clean(dir), path.Clean(m.MountPath)) }
		return m.Name == volume && (m.SubPath != "" || m.SubPathExpr != "" || slices.ContainsFunc(line.envDirs, env))
	})
}
