package lab

import (
	"fmt"
	"strings"
)

// The lab's node, as every network namespace of a lab has it for itself.
const (
	nodeIP     = "10.99.0.1"
	switchIP   = "10.99.0.254"
	podRange   = "10.98.1.0/24"
	pauseImage = "lab.local/pause:1"
	criSocket  = "/run/containerd/containerd.sock"
)

// kubeletConfig is what the kubelet is told beside its flags.
//
// Settings that a user's kubelet would not have: failCgroupV1, for machines
// that still have cgroup v1; cgroupRoot, which keeps labs apart;
// makeIPTablesUtilChains, which leaves netfilter alone; the thresholds, since
// the node's disk is a folder of a machine whose fill is not the lab's matter;
// readOnlyPort, whose /pods tests look at.
func kubeletConfig(cgroupRoot string) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 0.0.0.0
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: %s
clusterDNS: []
containerRuntimeEndpoint: unix://%s
enforceNodeAllocatable: []
evictionHard: {memory.available: "10Mi", nodefs.available: "1%%", imagefs.available: "1%%", nodefs.inodesFree: "1%%"}
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
logging: {verbosity: 2}
makeIPTablesUtilChains: false
nodeStatusUpdateFrequency: 4s
readOnlyPort: 10255
registerNode: true
resolvConf: /etc/resolv.conf
staticPodPath: /etc/kubernetes/manifests
tlsCertFile: /etc/kubernetes/pki/kubelet-server.crt
tlsPrivateKeyFile: /etc/kubernetes/pki/kubelet-server.key
`, cgroupRoot, criSocket)
}

// containerdConfig is for containerd 1.x. restrict_oom_score_adj keeps runc
// from asking for less than its own score, which fails without CAP_SYS_RESOURCE
// with a message that names neither ("can't get final child's PID from pipe").
func containerdConfig() string {
	disabled := []string{
		"io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
		"io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
		"io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing",
	}
	return fmt.Sprintf(`version = 2
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
`, strings.Join(disabled, `", "`), criSocket, pauseImage)
}

// cniConfig gives pods that are not on the host's network an address each. What
// is given out stands in /run, so that a power cut frees it all.
func cniConfig() string {
	return `{"cniVersion": "0.4.0", "name": "lab", "plugins": [{"type": "ptp", "ipam": {
	"type": "host-local", "ranges": [[{"subnet": "` + podRange + `"}]], "dataDir": "/run/cni-ipam"}}]}
`
}
