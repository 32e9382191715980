package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

var activationID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// Manifest makes the static pod of one activation, as JSON, which the kubelet
// reads like YAML. activation is 32 hexadecimal digits and becomes the pod's
// uid, since the kubelet's own would change with its version. volumes gives each
// payload volume of the sanitized pod an absolute path on the host: no less, no
// more. Equal arguments give equal bytes.
func Manifest(pod *v1.Pod, activation, node string, generation int64, volumes map[string]string) ([]byte, error) {
	if err := verify(pod); err != nil {
		return nil, fmt.Errorf("make manifest: %w", err)
	}
	id := IdentityOf(pod)
	name, err := manifestName(id.Workload, activation, node)
	if err != nil {
		return nil, fmt.Errorf("make manifest of %s/%s: %w", id.Namespace, id.Workload, err)
	}
	static := pod.DeepCopy()
	static.Name, static.UID = name, types.UID(activation)
	static.Annotations[AnnotationActivation] = activation
	static.Annotations[AnnotationGeneration] = strconv.FormatInt(generation, 10)
	if err := mountPayload(&static.Spec, volumes); err != nil {
		return nil, fmt.Errorf("make manifest of %s/%s: %w", id.Namespace, id.Workload, err)
	}
	data, err := json.MarshalIndent(static, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("make manifest of %s/%s: %w", id.Namespace, id.Workload, err)
	}
	return append(data, '\n'), nil
}

// manifestName differs between activations, because a kubelet that has not
// reached the API server never starts a second pod of one name. The kubelet
// appends the node's.
func manifestName(workload, activation, node string) (string, error) {
	if !activationID.MatchString(activation) {
		return "", fmt.Errorf("activation %q: not 32 hexadecimal digits", activation)
	}
	suffix := "-checkpoint-" + activation[:8]
	room := validation.DNS1123SubdomainMaxLength - len(suffix) - len("-"+node)
	name := strings.TrimRight(workload[:max(0, min(len(workload), room))], "-.") + suffix
	if errs := validation.IsDNS1123Subdomain(name + "-" + strings.ToLower(node)); len(errs) > 0 {
		return "", fmt.Errorf("name %q on node %q: %s", name, node, strings.Join(errs, "; "))
	}
	return name, nil
}

func mountPayload(spec *v1.PodSpec, volumes map[string]string) error {
	unused := maps.Clone(volumes)
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if !isPayload(*v) {
			continue
		}
		dir := volumes[v.Name]
		if !path.IsAbs(dir) {
			return fmt.Errorf("volume %s: payload path %q is not absolute", v.Name, dir)
		}
		v.HostPath.Path = dir
		delete(unused, v.Name)
	}
	if len(unused) > 0 {
		return fmt.Errorf("volumes %q are no payload volumes", slices.Sorted(maps.Keys(unused)))
	}
	return nil
}

// Decode reads the JSON of a sanitized pod. It refuses one of which it would
// lose a field, and one that Take can't have made.
func Decode(data []byte) (*v1.Pod, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var pod v1.Pod
	if err := dec.Decode(&pod); err != nil {
		return nil, fmt.Errorf("decode sanitized pod: %w", err)
	}
	if err := verify(&pod); err != nil {
		return nil, fmt.Errorf("decode sanitized pod: %w", err)
	}
	return &pod, nil
}
