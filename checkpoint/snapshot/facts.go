package snapshot

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Facts are what a sanitized pod says beside its spec.
type Facts struct {
	Lock   *Lock         // nil: no lock
	Ready  *Probe        // readiness as we ask it ourselves; nil: none that we can ask
	Grace  time.Duration // for the checkpoint to end in at a handoff; 0: SIGKILL at once
	Images []string      // without duplicates, in the order of the containers, then of the volumes
	After  []string      // workloads that a start waits for, as namespace/workload
	Data   Data          // the directory that it needs
	Fixed  []string      // payload volumes that a container which runs never gets anew

	LockExec string // lock-exec on the host, by which a container starts; "": none does, or by its image's own
}

// Lock says which container takes which lock.
type Lock struct {
	Name      string // of the annotation
	Path      string // on the host
	Container string
}

// Probe is a readiness probe that can be asked from the node.
type Probe struct {
	Scheme  string // http, https or tcp
	Host    string // host:port
	Path    string // of http and https, with its query
	Header  map[string][]string
	Timeout time.Duration // at least a second
}

// FactsOf reads the facts out of a sanitized pod alone, so that at boot a stored
// generation is all that is needed.
func FactsOf(sanitized *v1.Pod) (Facts, error) {
	if err := verify(sanitized); err != nil {
		return Facts{}, fmt.Errorf("read sanitized pod: %w", err)
	}
	spec := &sanitized.Spec
	var f Facts
	if name := sanitized.Annotations[AnnotationLock]; name != "" {
		l, err := findLock(spec)
		if err != nil {
			return Facts{}, fmt.Errorf("read sanitized pod: %w", err)
		}
		f.Lock = &Lock{Name: name, Path: l.path, Container: l.container.Name}
		f.Ready = checkReadiness(l.container.ReadinessProbe)
	} else {
		f.Ready = plainReadiness(spec)
	}
	f.Grace, _ = parseGrace(sanitized.Annotations[AnnotationHandoffGrace])
	if after, ok := sanitized.Annotations[AnnotationAfter]; ok {
		f.After, _ = parseAfter(after, sanitized.Namespace)
	}
	f.Images, f.Fixed, f.Data, f.LockExec = images(spec), fixed(spec), dataOf(sanitized), hostLockExec(spec)
	return f, nil
}

func hostLockExec(spec *v1.PodSpec) string {
	for _, c := range allContainers(spec) {
		if _, launched := launchLine(c.Container); launched {
			if file, err := hostFile(spec, c.Container, c.Command[0], c.at); err == nil {
				return file
			}
		}
	}
	return ""
}

func images(spec *v1.PodSpec) []string {
	var list []string
	add := func(image string) {
		if !slices.Contains(list, image) {
			list = append(list, image)
		}
	}
	for _, c := range allContainers(spec) {
		add(c.Image)
	}
	for _, v := range spec.Volumes {
		if v.Image != nil {
			add(v.Image.Reference)
		}
	}
	return list
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

// plainReadiness is the first readiness probe of a pod without a lock that can be
// asked from the node.
func plainReadiness(spec *v1.PodSpec) *Probe {
	for _, c := range allContainers(spec) {
		if ready, ok := plainProbe(spec, c.ReadinessProbe); ok {
			return &ready
		}
	}
	return nil
}

func plainProbe(spec *v1.PodSpec, p *v1.Probe) (Probe, bool) {
	words := []string{"", ""}
	switch {
	case p == nil || !spec.HostNetwork: // in a network of its own, nobody knows its address
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

// verify says whether pod is one that Take made.
func verify(pod *v1.Pod) error {
	id := IdentityOf(pod)
	if id.Namespace == "" || id.Workload == "" || id.Kind == "" || id.Namespace != pod.Namespace {
		return fmt.Errorf("no checkpoint: annotations %s and %s are absent or wrong", AnnotationCheckpointOf, AnnotationKind)
	}
	if _, ok := parseGrace(pod.Annotations[AnnotationHandoffGrace]); !ok {
		return fmt.Errorf("annotation %s: no duration", AnnotationHandoffGrace)
	}
	if after, ok := pod.Annotations[AnnotationAfter]; ok {
		if _, ok := parseAfter(after, pod.Namespace); !ok {
			return fmt.Errorf("annotation %s: no names of workloads", AnnotationAfter)
		}
	}
	if data, ok := pod.Annotations[AnnotationData]; ok && !dataPath(data) {
		return fmt.Errorf("annotation %s: no path of a directory", AnnotationData)
	}
	return noReference(&pod.Spec)
}
