package snapshot

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Prefix of all our annotations.
const Prefix = "pod-checkpointer.io/"

// Annotations of a parent, which a user sets.
const (
	AnnotationCheckpoint   = Prefix + "checkpoint" // "true": protect this pod
	AnnotationLock         = Prefix + "lock"       // name of the lock file, without .lock
	AnnotationHandoffGrace = Prefix + "handoff-grace"
	AnnotationAfter        = Prefix + "after" // [namespace/]workload[,…]: start once these answer
	AnnotationData         = Prefix + "data"  // directory on the host, without which nothing starts

	annotationOldCheckpoint = "checkpointer.alpha.coreos.com/checkpoint" // as AnnotationCheckpoint
)

// Annotations of a checkpoint, which we set. It carries AnnotationLock,
// AnnotationHandoffGrace, AnnotationAfter and AnnotationData as well. A daemon that
// does not know AnnotationData reads past it, and past what belongs to it.
const (
	AnnotationCheckpointOf = Prefix + "checkpoint-of" // namespace/workload
	AnnotationKind         = Prefix + "kind"          // see Identity
	AnnotationGeneration   = Prefix + "generation"
	AnnotationActivation   = Prefix + "activation"
	AnnotationDataEtcd     = Prefix + "data-etcd" // see Data
)

// What the kubelet says of where a pod came from
// (pkg/kubelet/types/pod_update.go, v1.37.2).
const (
	annotationMirror = "kubernetes.io/config.mirror"
	annotationSource = "kubernetes.io/config.source"
	sourceAPI        = "api"
)

// Wanted reports whether pod asks to be protected: it has the annotation
// checkpoint, in our spelling or the older one, and is neither a mirror pod nor
// a checkpoint. A value other than "true" and "false" counts, so that Take can
// say that it is wrong.
func Wanted(pod *v1.Pod) bool {
	_, mirror := pod.Annotations[annotationMirror]
	return !mirror && wanted(pod.Annotations)
}

func wanted(annotations map[string]string) bool {
	if _, ours := annotations[AnnotationCheckpointOf]; ours {
		return false
	}
	for _, key := range []string{AnnotationCheckpoint, annotationOldCheckpoint} {
		if value, ok := annotations[key]; ok {
			return value != "false"
		}
	}
	return false
}

// settings are what the annotations of a parent say.
type settings struct {
	lock  string         // "": none
	grace *time.Duration // nil: not said
	after []string       // namespace/workload
	data  string         // "": none
}

// readAnnotations refuses what it does not know below our prefix: a misspelt
// annotation must not pass for protection.
func readAnnotations(pod *v1.Pod) (settings, error) {
	var s settings
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		if key != annotationOldCheckpoint && !strings.HasPrefix(key, Prefix) {
			continue
		}
		if err := s.read(key, pod.Annotations[key], pod.Namespace); err != nil {
			return settings{}, err
		}
	}
	return s, nil
}

func (s *settings) read(key, value, namespace string) error {
	at := annotationField(key)
	switch key {
	case AnnotationCheckpoint, annotationOldCheckpoint:
		if value != "true" {
			return refused(BadAnnotation, at, `%q is neither "true" nor "false"; write "true"`, value)
		}
	case AnnotationLock:
		if len(validation.IsDNS1123Label(value)) > 0 {
			return refused(BadAnnotation, at, "%q is no name of a lock; use at most 63 lower-case letters, digits and -", value)
		}
		s.lock = value
	case AnnotationHandoffGrace:
		grace, ok := parseGrace(value)
		if !ok {
			return refused(BadAnnotation, at, "%q is no duration; write seconds such as 5, or 1m30s, or 0 for none", value)
		}
		s.grace = &grace
	case AnnotationAfter:
		after, ok := parseAfter(value, namespace)
		if !ok {
			return refused(BadAnnotation, at, "%q names no workloads; write names such as kube-apiserver or kube-system/kube-apiserver, with commas between them", value)
		}
		s.after = after
	case AnnotationData:
		if !dataPath(value) {
			return refused(BadAnnotation, at, "%q is no clean absolute path of a directory; write one such as /var/lib/etcd", value)
		}
		s.data = value
	case AnnotationCheckpointOf, AnnotationKind, AnnotationGeneration, AnnotationActivation, AnnotationDataEtcd:
		return refused(AlreadyCheckpoint, at, "the pod is a checkpoint itself; remove the annotation if it is not")
	case Prefix + "standby", Prefix + "fallback":
		return refused(BadAnnotation, at, "not implemented by this version; remove it")
	default:
		return refused(BadAnnotation, at, "no such annotation; correct its name or remove it")
	}
	return nil
}

// parseGrace reads a Go duration or plain seconds.
func parseGrace(value string) (time.Duration, bool) {
	if _, err := strconv.ParseFloat(value, 64); err == nil {
		value += "s"
	}
	grace, err := time.ParseDuration(value)
	return grace, err == nil && grace >= 0
}

// parseAfter reads the names of workloads, each once, in their order. One without
// a namespace is of the given one.
func parseAfter(value, namespace string) ([]string, bool) {
	var after []string
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		if !strings.Contains(name, "/") {
			name = namespace + "/" + name
		}
		ns, workload, _ := strings.Cut(name, "/")
		if len(validation.IsDNS1123Label(ns)) > 0 || len(validation.IsDNS1123Subdomain(workload)) > 0 {
			return nil, false
		}
		if !slices.Contains(after, name) {
			after = append(after, name)
		}
	}
	return after, true
}

// handoffGrace returns what the user said, else none for an API server, which
// has nothing to save and holds its lock for as long as watches are open, else
// what the pod has to end in anyway.
func (s settings) handoffGrace(spec *v1.PodSpec) time.Duration {
	switch l, _ := findLock(spec); {
	case s.grace != nil:
		return *s.grace
	case s.lock != "" && l.servesAPI():
		return 0
	case spec.TerminationGracePeriodSeconds == nil:
		return v1.DefaultTerminationGracePeriodSeconds * time.Second
	}
	return time.Duration(min(*spec.TerminationGracePeriodSeconds, math.MaxInt32)) * time.Second
}

func annotationField(key string) string {
	return "metadata.annotations[" + key + "]"
}
