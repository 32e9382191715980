package snapshot

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Facts reads out of a sanitized pod what Take said of it, so that at boot a
// stored generation is all that is needed. Decode vouches for a stored pod.
func Facts(sanitized *v1.Pod) (lock *Lock, ready *Probe, grace time.Duration, images []string) {
	spec := &sanitized.Spec
	if name := sanitized.Annotations[AnnotationLock]; name != "" {
		if l, err := findLock(spec); err == nil {
			lock = &Lock{Name: name, Path: l.path, Container: l.container.Name}
			ready = checkReadiness(l.container.ReadinessProbe)
		}
	} else {
		ready, _ = plainReadiness(spec)
	}
	grace, _ = parseGrace(sanitized.Annotations[AnnotationHandoffGrace])
	for _, c := range allContainers(spec) {
		if !slices.Contains(images, c.Image) {
			images = append(images, c.Image)
		}
	}
	return lock, ready, grace, images
}

// checkReadiness is that of the container that takes the lock.
func checkReadiness(p *v1.Probe) *Probe {
	if p == nil || p.Exec == nil {
		return nil
	}
	line, _ := checkLine(p.Exec.Command)
	ready, ok := parseTarget(line.rest)
	if !ok {
		return nil
	}
	ready.Timeout = seconds(p.TimeoutSeconds, 1)
	return &ready
}

// plainReadiness returns the first readiness probe of a pod without a lock that
// can be asked from the node, and the fields of those that can't.
func plainReadiness(spec *v1.PodSpec) (ready *Probe, cannot []string) {
	for _, c := range allContainers(spec) {
		p := c.ReadinessProbe
		if p == nil {
			continue
		}
		asked, ok := plainProbe(spec, p)
		switch {
		case !ok:
			cannot = append(cannot, c.at+".readinessProbe")
		case ready == nil:
			ready = &asked
		}
	}
	return ready, cannot
}

func plainProbe(spec *v1.PodSpec, p *v1.Probe) (Probe, bool) {
	words := []string{"", ""}
	switch {
	case !spec.HostNetwork: // nobody knows the address that it will have
		return Probe{}, false
	case p.HTTPGet != nil && p.HTTPGet.Protocol == nil:
		words = []string{schemeOf(p.HTTPGet), getURL(p.HTTPGet)}
	case p.TCPSocket != nil:
		words = []string{"tcp", hostPort(p.TCPSocket.Host, p.TCPSocket.Port.IntVal)}
	}
	asked, ok := parseTarget(words)
	asked.Timeout = seconds(p.TimeoutSeconds, 1)
	if p.HTTPGet != nil {
		for _, h := range p.HTTPGet.HTTPHeaders {
			if asked.Header == nil {
				asked.Header = map[string][]string{}
			}
			asked.Header[h.Name] = append(asked.Header[h.Name], h.Value)
		}
	}
	return asked, ok
}

// findings are what a user ought to know of a pod that can be protected.
func findings(sanitized *v1.Pod) []string {
	var f []string
	spec := &sanitized.Spec
	if sanitized.Annotations[AnnotationLock] != "" {
		if l, err := findLock(spec); err == nil && l.container.ReadinessProbe == nil {
			f = append(f, "UnsafeReadiness: "+l.at+" has no readinessProbe: a checkpoint counts as ready after it served for a while")
		}
	} else {
		ready, cannot := plainReadiness(spec)
		for _, at := range cannot {
			f = append(f, "UnsafeReadiness: "+at+" can't be asked from the node")
		}
		if ready == nil && len(cannot) == 0 {
			f = append(f, "UnsafeReadiness: no container has a readinessProbe: a checkpoint counts as ready after it served for a while")
		}
	}
	if !spec.HostNetwork {
		f = append(f, "PodNetwork: the checkpoint starts only once the network plugin runs, which may need the API server")
	}
	return f
}

// verify says whether Facts and IdentityOf can read pod.
func verify(pod *v1.Pod) error {
	id := IdentityOf(pod)
	if id.Namespace == "" || id.Workload == "" || id.Kind == "" || id.Namespace != pod.Namespace {
		return fmt.Errorf("no checkpoint: annotations %s and %s are absent or wrong", AnnotationCheckpointOf, AnnotationKind)
	}
	if _, ok := parseGrace(pod.Annotations[AnnotationHandoffGrace]); !ok {
		return fmt.Errorf("annotation %s: no duration", AnnotationHandoffGrace)
	}
	if id.Lock != "" {
		if _, err := findLock(&pod.Spec); err != nil {
			return err
		}
	}
	return noReference(&pod.Spec)
}
