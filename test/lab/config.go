package lab

import "fmt"

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
func kubeletConfig(cgroupRoot string, maxPods int) string {
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
maxPods: %d
nodeStatusUpdateFrequency: 4s
readOnlyPort: 10255
registerNode: true
resolvConf: /etc/resolv.conf
staticPodPath: /etc/kubernetes/manifests
tlsCertFile: /etc/kubernetes/pki/kubelet-server.crt
tlsPrivateKeyFile: /etc/kubernetes/pki/kubelet-server.key
`, cgroupRoot, criSocket, maxPods)
}

// cniConfig gives pods that are not on the host's network an address each. What
// is given out stands in /run, so that a power cut frees it all.
func cniConfig() string {
	return `{"cniVersion": "0.4.0", "name": "lab", "plugins": [{"type": "ptp", "ipam": {
	"type": "host-local", "ranges": [[{"subnet": "` + podRange + `"}]], "dataDir": "/run/cni-ipam"}}]}
`
}
