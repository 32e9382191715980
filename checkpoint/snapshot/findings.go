package snapshot

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// longGrace is how long others may well wait for a lock.
const longGrace = 10 * time.Second

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
	if f.Lock != nil {
		list = append(list, longGraces(parent, f)...)
	}
	if !parent.HostNetwork {
		list = append(list, "PodNetwork: the checkpoint starts only once the network plugin runs, which may need the API server")
	}
	return list
}

// longGraces: the lock passes on when its holder is gone, and not before.
func longGraces(parent *v1.PodSpec, f Facts) []string {
	var list []string
	if grace := parent.TerminationGracePeriodSeconds; grace == nil {
		list = append(list, "LongGrace: spec.terminationGracePeriodSeconds is absent, which is 30: nobody may serve for so long while the pod is deleted or updated; set it to 10 or less, of kube-apiserver to 1")
	} else if seconds := *grace; seconds > int64(longGrace/time.Second) {
		list = append(list, fmt.Sprintf("LongGrace: spec.terminationGracePeriodSeconds is %d: nobody may serve for so long while the pod is deleted or updated; set it to 10 or less, of kube-apiserver to 1", seconds))
	}
	if f.Grace > longGrace {
		list = append(list, fmt.Sprintf("LongGrace: a checkpoint may take %s to end when it hands over, and nobody serves meanwhile; set %s to 10s or less",
			f.Grace, annotationField(AnnotationHandoffGrace)))
	}
	return list
}
