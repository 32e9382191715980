package checkpoint

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// containerLabel is the type that every container may read, at a level without
// categories, which that of every container dominates. The kubelet has the runtime
// label a Secret volume with the categories of its pod, and a hostPath volume, which
// those of a checkpoint are, not at all (SELinuxRelabel in its
// pkg/kubelet/kubelet_pods.go, v1.37).
const containerLabel = "system_u:object_r:container_file_t:s0"

// SELinuxLabel returns the label of files for containers, "" where the kernel runs
// without SELinux. It lists selinuxfs if it was booted with it, and only then
// (init_sel_fs in Linux's security/selinux/selinuxfs.c); libselinux goes by the same
// file (selinuxfs_exists in its src/init.c). A permissive host gets labels too: it may
// become an enforcing one while a checkpoint runs.
func SELinuxLabel(proc string) (string, error) {
	data, err := os.ReadFile(filepath.Join(proc, "filesystems"))
	if err != nil {
		return "", fmt.Errorf("look for SELinux: %w", err)
	}
	for line := range bytes.Lines(data) { // nodev<TAB>name, or <TAB>name
		if _, name, _ := bytes.Cut(line, []byte("\t")); string(bytes.TrimSpace(name)) == "selinuxfs" {
			return containerLabel, nil
		}
	}
	return "", nil
}
