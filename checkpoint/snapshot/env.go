package snapshot

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// sanitizeEnv writes down what the kubelet could not find out of a checkpoint,
// or would find to be another value than the parent's.
func sanitizeEnv(c *v1.Container, from source, at string) error {
	for i := range c.Env {
		e := &c.Env[i]
		if e.ValueFrom == nil {
			continue
		}
		at := fmt.Sprintf("%s.env[%d].valueFrom", at, i)
		switch {
		case e.Value != "":
			return refused(Unsupported, at, "value and valueFrom exclude each other; remove one")
		case e.ValueFrom.FieldRef != nil:
			value, literal, err := fieldValue(e.ValueFrom.FieldRef.FieldPath, from, at+".fieldRef.fieldPath")
			if err != nil {
				return err
			}
			if literal {
				// The kubelet expands $(NAME) in a value but not in a reference.
				e.Value, e.ValueFrom = strings.ReplaceAll(value, "$", "$$"), nil
			}
		case e.ValueFrom.ResourceFieldRef != nil:
			value, literal, err := resourceValue(e.ValueFrom.ResourceFieldRef, c, from, at+".resourceFieldRef")
			if err != nil {
				return err
			}
			if literal {
				e.Value, e.ValueFrom = value, nil
			}
		case e.ValueFrom.ConfigMapKeyRef != nil || e.ValueFrom.SecretKeyRef != nil || e.ValueFrom.FileKeyRef != nil:
			// See resolveEnv.
		default:
			return refused(Unsupported, at, "it names no source; give the variable a value")
		}
	}
	return nil
}

// fieldValue returns the parent's value of a field of itself, where the
// checkpoint's own would be another; else literal is false.
func fieldValue(field string, from source, at string) (value string, literal bool, err error) {
	pod := from.pod
	switch field {
	case "spec.nodeName", "metadata.namespace", "metadata.uid":
		return "", false, nil
	case "metadata.name":
		// Of a DaemonSet or Deployment each parent has its own name, as has each
		// checkpoint.
		return pod.Name, from.id.named(), nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, true, nil
	case "status.hostIP", "status.hostIPs":
		return knownIP(hostIPs(pod), field, at)
	case "status.podIP", "status.podIPs":
		if !pod.Spec.HostNetwork {
			return "", false, nil
		}
		return knownIP(podIPs(pod), field, at)
	}
	path, key, ok := strings.Cut(strings.TrimSuffix(field, "']"), "['")
	switch {
	case ok && path == "metadata.labels":
		return pod.Labels[key], true, nil
	case ok && path == "metadata.annotations":
		return pod.Annotations[key], true, nil
	}
	return "", false, refused(Unsupported, at, "%q can't be found out for a checkpoint; write the value into the pod", field)
}

// knownIP: without its Node object a kubelet may not know its own address, so
// that the parent's is written down.
func knownIP(ips []string, field, at string) (string, bool, error) {
	if len(ips) == 0 || ips[0] == "" {
		return "", false, refused(Unsupported, at, "the parent has no address yet; wait until it runs")
	}
	if strings.HasSuffix(field, "s") {
		return strings.Join(ips, ","), true, nil
	}
	return ips[0], true, nil
}

func hostIPs(pod *v1.Pod) []string {
	ips := []string{pod.Status.HostIP}
	for _, ip := range pod.Status.HostIPs {
		if ip.IP != pod.Status.HostIP {
			ips = append(ips, ip.IP)
		}
	}
	return ips
}

func podIPs(pod *v1.Pod) []string {
	ips := []string{pod.Status.PodIP}
	for _, ip := range pod.Status.PodIPs {
		if ip.IP != pod.Status.PodIP {
			ips = append(ips, ip.IP)
		}
	}
	return ips
}

// resourceValue returns the parent's value of a resource of its container c, or of
// another one, where the checkpoint's own would be another; else literal is false.
func resourceValue(r *v1.ResourceFieldSelector, c *v1.Container, from source, at string) (value string, literal bool, err error) {
	if r.ContainerName != "" {
		if c, err = resourceContainer(r, from, at+".containerName"); err != nil {
			return "", false, err
		}
	}
	if kept, err := keptResource(r, c, from, at+".resource"); kept || err != nil {
		return "", false, err
	}
	value, err = resourceText(r, c, from, at+".resource")
	return value, true, err
}
