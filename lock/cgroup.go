package lock

import (
	"regexp"
	"strings"
)

var (
	// The name of a container's cgroup: the id alone (containerd with the
	// cgroupfs driver), or as systemd's scope of containerd or CRI-O, which
	// keeps its prefix with cgroupfs too. CRI-O's "crio-conmon-" is its monitor.
	containerName = regexp.MustCompile(`^(?:cri-containerd-|crio-|docker-)?([0-9a-f]{64})(?:\.scope)?$`)

	// The name of a pod's cgroup: systemd's carries those of its parents before
	// it, and "_" for "-". A static pod's UID is 32 hex digits without dashes.
	podName = regexp.MustCompile(`(?:^|-)pod([0-9a-f]{32}|[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?$`)
)

// parseCgroup returns the container and the pod that the text of a
// /proc/PID/cgroup names, "" where it names none.
//
// It looks at single elements, the last ones first, and never at the whole
// path: a path is relative to the reader's cgroup namespace ("/../../kubepods/…"),
// below whatever the kubelet itself runs in, and a container may have cgroups
// of its own below its own (crun makes one named "container").
func parseCgroup(text string) (container, pod string) {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		if container, pod = parsePath(parts[2]); container != "" {
			return container, pod
		}
	}
	return "", ""
}

func parsePath(path string) (container, pod string) {
	// containerd with the cgroupfs driver below a kubelet with the systemd
	// driver makes one element of all: "kubepods-pod….slice:cri-containerd:<id>".
	elements := strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == ':' })
	for i := len(elements) - 1; i >= 0; i-- {
		if container == "" {
			if m := containerName.FindStringSubmatch(elements[i]); m != nil {
				container = m[1]
			}
			continue
		}
		if m := podName.FindStringSubmatch(elements[i]); m != nil {
			return container, strings.ReplaceAll(m[1], "_", "-")
		}
	}
	return container, ""
}
