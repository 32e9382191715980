package lab

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// ContainerdVersions are those that a lab can run, the default first.
var ContainerdVersions = []string{"2.4.2", debianContainerd}

// debianContainerd is the one of Debian 12. The others are built.
const debianContainerd = "1.6.20"

// containerdModule builds containerd, its shim and ctr, which belong together:
// a containerd 2 can't start the shim of a 1.x.
func containerdModule(root string) nested {
	return nested{
		dir: filepath.Join(root, "test", "lab", "containerd"), pkg: "tool", files: []string{"go.mod", "go.sum"},
		flags: []string{"-tags=no_devmapper,no_zfs"},
	}
}

// buildContainerd returns the folder with the three programs.
func buildContainerd(ctx context.Context, c cache, root, version string, say logf) (string, error) {
	m := containerdModule(root)
	key, err := m.key()
	if err != nil {
		return "", err
	}
	return c.get(ctx, "containerd", key, func(into string) error {
		say("build containerd %s: about 1.5 minutes on 2 cores the first time", version)
		stamp := "-X github.com/containerd/containerd/v2/version.Version=" + version
		if err := m.build(ctx, into+"/", stamp, say); err != nil {
			return fmt.Errorf("build containerd: %w", err)
		}
		return nil
	})
}

// unpackedContainerd is the folder with Debian's three programs, if they are of
// the version that was asked for: other releases of Debian have others.
func unpackedContainerd(ctx context.Context, debian string) (string, error) {
	dir := filepath.Join(debian, "usr/bin")
	text, err := output(ctx, "/", filepath.Join(dir, "containerd"), "--version")
	if err != nil {
		return "", err
	}
	if !strings.Contains(text, " "+debianContainerd) {
		return "", fmt.Errorf("containerd %s is not what apt has here, which is %q: use %s", debianContainerd, strings.TrimSpace(text), ContainerdVersions[0])
	}
	return dir, nil
}

// containerdConfig is the runtime's own.
//
// restrict_oom_score_adj keeps runc from asking for less than its own score,
// which fails without CAP_SYS_RESOURCE with a message that names neither ("can't
// get final child's PID from pipe"). Of the disabled plugins, opt would make a
// folder in the machine's /opt; the others have nothing to work with.
func containerdConfig(version string) string {
	text, disabled := containerd2Config, []string{
		"io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs",
		"io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing", "io.containerd.nri.v1.nri",
	}
	if version == debianContainerd {
		text, disabled = containerd1Config, []string{
			"io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
			"io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
			"io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing",
		}
	}
	return fmt.Sprintf(text, strings.Join(disabled, `", "`), criSocket, pauseImage)
}

const containerd2Config = `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["%s"]
[grpc]
  address = "%s"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "%s"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        SystemdCgroup = false
`

const containerd1Config = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["%s"]
[grpc]
  address = "%s"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "%s"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
`
