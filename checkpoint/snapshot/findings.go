package snapshot

import v1 "k8s.io/api/core/v1"

// findings are about a parent that can be protected, and whose checkpoint f
// describes.
func findings(parent *v1.PodSpec, f Facts) []string {
	var list []string
	if f.Ready == nil {
		list = append(list, "UnsafeReadiness: no readiness probe can be asked from the node; who served for a while counts as ready")
	}
	for _, c := range allContainers(parent) {
		switch p := c.ReadinessProbe; {
		case p == nil:
		case f.Lock != nil && c.Name == f.Lock.Container && p.Exec == nil:
			list = append(list, "UnsafeReadiness: "+c.at+".readinessProbe passes while the pod waits for its lock; use "+lockExec+" check --ready")
		case f.Lock == nil && f.Ready != nil && p.HTTPGet == nil && p.TCPSocket == nil:
			list = append(list, "UnsafeReadiness: "+c.at+".readinessProbe can't be asked from the node")
		}
	}
	if !parent.HostNetwork {
		list = append(list, "PodNetwork: the checkpoint starts only once the network plugin runs, which may need the API server")
	}
	return list
}
