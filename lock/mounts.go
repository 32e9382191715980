package lock

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// podMount is the kubelet's own directory of a pod, as the root of what it mounts
// into each container: the file of /etc/hosts, and that of the termination log
// (k8s.io/kubernetes@v1.37.2 pkg/kubelet/kubelet_pods.go, makeMounts and
// pkg/kubelet/kuberuntime/kuberuntime_container.go, makeMounts).
var podMount = regexp.MustCompile(`/pods/([0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/(?:etc-hosts|containers/[^/]+/[^/]+)$`)

// atRoot says whether the text of a /proc/PID/cgroup names the root alone. That is
// what a reader in a cgroup namespace of its own, as a container has by default,
// sees of itself (cgroup_namespaces(7)).
func atRoot(text string) bool {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && parts[2] != "/" {
			return false
		}
	}
	return true
}

// podByMounts returns the pod that a process is in by what the kubelet has mounted
// for it, "" where it has not.
func podByMounts(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, "mountinfo"))
	if err != nil {
		return ""
	}
	return parseMounts(string(text))
}

// parseMounts reads a /proc/PID/mountinfo (proc_pid_mountinfo(5)), of whose lines
// field 4 is the root of the mount in its file system and field 5 the mount point:
//
//	731 712 8:1 /var/lib/kubelet/pods/5f0c…/etc-hosts /etc/hosts rw,relatime - ext4 /dev/sda1 rw
func parseMounts(text string) string {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 5 || fields[4] != "/etc/hosts" && fields[4] != "/dev/termination-log" {
			continue
		}
		if m := podMount.FindStringSubmatch(fields[3]); m != nil {
			return m[1]
		}
	}
	return ""
}
