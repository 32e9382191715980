package kubelet

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// What a manifest of ours is recognised by.
const (
	ofAnnotation         = "pod-checkpointer.io/checkpoint-of" // namespace/workload
	generationAnnotation = "pod-checkpointer.io/generation"
	activationAnnotation = "pod-checkpointer.io/activation"
	copyAnnotation       = "pod-checkpointer.io/copy-of" // namespace/workload, of the daemon's static copy
)

// head is the little that is read of a manifest.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace   string            `json:"namespace"`
		Name        string            `json:"name"`
		UID         string            `json:"uid"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// parse reads the first document of a file, as the kubelet does.
func parse(data []byte) (head, error) {
	var h head
	decode := func(data []byte, into any) error { return yaml.Unmarshal(data, into) }
	if bytes.HasPrefix(data, []byte("{")) && json.Valid(data) {
		decode = json.Unmarshal // ours, in each pass: a twentieth of the work
	}
	if err := decode(data, &h); err != nil {
		return h, err
	}
	switch {
	case h.APIVersion != "v1" || h.Kind != "Pod":
		return h, fmt.Errorf("no v1 Pod but kind %q of version %q", h.Kind, h.APIVersion)
	case h.Metadata.Name == "":
		return h, errors.New("the pod has no name")
	}
	h.Metadata.Namespace = cmp.Or(h.Metadata.Namespace, "default")
	return h, nil
}

// ours tells whether the file is one of ours: one whose annotations name a workload
// of the pod's own namespace, and a generation.
func (h head) ours() (workload string, generation int64, ok bool) {
	workload, ok = h.names(ofAnnotation)
	if !ok {
		return "", 0, false
	}
	generation, err := strconv.ParseInt(h.Metadata.Annotations[generationAnnotation], 10, 64)
	return workload, generation, err == nil
}

// copyOf tells whether the file is a static copy of the daemon, and of which workload.
func (h head) copyOf() (workload string, ok bool) { return h.names(copyAnnotation) }

// names reads an annotation that names a workload of the pod's own namespace.
func (h head) names(annotation string) (workload string, ok bool) {
	namespace, workload, ok := strings.Cut(h.Metadata.Annotations[annotation], "/")
	return workload, ok && workload != "" && namespace == h.Metadata.Namespace
}

// written tells whether we wrote the file: the kubelet's pod is our doing.
func (h head) written() bool {
	_, _, ours := h.ours()
	_, copied := h.copyOf()
	return ours || copied
}

// staticName is the name that the kubelet gives a static pod
// (k8s.io/kubernetes@v1.37.2 pkg/kubelet/config/common.go, generatePodName).
func staticName(name, node string) string { return name + nodeSuffix(node) }

func nodeSuffix(node string) string { return "-" + strings.ToLower(node) }

// maxFile leaves room below the 255 bytes of a file name.
const maxFile = 200

// File is the name of a workload's manifest. Different workloads have different
// names: a namespace has no dot, so that the first one ends it. What would be too
// long for a file name ends in a digest.
func File(namespace, workload string) string {
	name := prefix + namespace + "." + workload
	if len(name) > maxFile {
		sum := sha256.Sum256([]byte(name))
		digest := "-" + hex.EncodeToString(sum[:16])
		name = name[:maxFile-len(digest)] + digest
	}
	return name + suffix
}

const prefix, suffix = "pod-checkpointer-", ".json"

// CopyFile is the name of the daemon's own static copy. [File] never gives it.
const CopyFile = "pod-checkpointer.json"

// named tells whether a file has a name that File gives.
func named(file string) bool {
	return strings.HasPrefix(file, prefix) && strings.HasSuffix(file, suffix)
}
