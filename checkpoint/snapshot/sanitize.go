package snapshot

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The class of which the kubelet evicts and preempts nothing, and which it shuts
// down last. It looks up neither by the other (k8s.io/kubernetes v1.37.2,
// pkg/apis/scheduling/types.go).
const (
	criticalClass    = "system-node-critical"
	criticalPriority = 2_000_001_000
)

// source is where values of the parent come from.
type source struct {
	pod      *v1.Pod
	id       Identity
	objects  Objects
	endpoint string // of the API server for clients on this node; "": not known
}

// sanitize does what the table calls transform, but for payload volumes.
func sanitize(spec *v1.PodSpec, from source) error {
	spec.RestartPolicy = v1.RestartPolicyAlways
	spec.AutomountServiceAccountToken = new(false)
	spec.EnableServiceLinks = new(false)
	spec.PriorityClassName = criticalClass
	spec.Priority = new(int32(criticalPriority))
	if spec.DNSPolicy != v1.DNSNone {
		spec.DNSPolicy = v1.DNSDefault
	}
	if grace := spec.TerminationGracePeriodSeconds; grace != nil {
		spec.TerminationGracePeriodSeconds = new(max(1, *grace))
	}
	if err := checkSearches(spec.DNSConfig); err != nil {
		return err
	}
	confine(spec, from.pod.Annotations)
	for i := range spec.Volumes {
		if image := spec.Volumes[i].Image; image != nil {
			image.PullPolicy = v1.PullIfNotPresent
		}
	}
	for i := range spec.InitContainers {
		dropRestart(&spec.InitContainers[i])
		if err := sanitizeContainer(spec, &spec.InitContainers[i], from, fmt.Sprintf("spec.initContainers[%d]", i)); err != nil {
			return err
		}
	}
	for i := range spec.Containers {
		spec.Containers[i].RestartPolicy = nil
		if err := sanitizeContainer(spec, &spec.Containers[i], from, fmt.Sprintf("spec.containers[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

// checkSearches: a kubelet of 1.34 holds a static pod to an older rule than the API
// server does (pkg/apis/core/validation/validation.go, validatePodDNSConfig, v1.34.4).
func checkSearches(c *v1.PodDNSConfig) error {
	if c == nil {
		return nil
	}
	for i, search := range c.Searches {
		if len(validation.IsDNS1123Subdomain(strings.TrimSuffix(search, "."))) > 0 {
			return refused(Unsupported, fmt.Sprintf("spec.dnsConfig.searches[%d]", i),
				"a kubelet of 1.34 takes %q from the API server and not from a manifest; use lower-case letters, digits, '-' and '.'", search)
		}
	}
	return nil
}

// dropRestart leaves what makes a sidecar of an init container. Any other policy would
// let one failure at boot fail the static pod for good, and a kubelet of 1.34 refuses it
// (pkg/apis/core/validation/validation.go, validateInitContainerRestartPolicy, v1.34.4).
func dropRestart(c *v1.Container) {
	if c.RestartPolicy != nil && *c.RestartPolicy != v1.ContainerRestartPolicyAlways {
		c.RestartPolicy = nil
	}
}

func sanitizeContainer(spec *v1.PodSpec, c *v1.Container, from source, at string) error {
	c.ImagePullPolicy = v1.PullIfNotPresent
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		v := slices.IndexFunc(spec.Volumes, func(v v1.Volume) bool { return v.Name == m.Name })
		if v < 0 {
			return refused(Unsupported, fmt.Sprintf("%s.volumeMounts[%d].name", at, i), "the pod has no volume %q; correct the name", m.Name)
		}
		m.ReadOnly = m.ReadOnly || isPayload(spec.Volumes[v])
	}
	dropIdle(c.Lifecycle)
	if err := sanitizeEnv(c, from, at); err != nil {
		return err
	}
	if err := sanitizeResources(&c.Resources, at+".resources"); err != nil {
		return err
	}
	// Names are resolved before the ports that bear them go.
	if err := resolvePorts(c, at); err != nil {
		return err
	}
	return sanitizePorts(spec, c, at)
}

// dropIdle takes out hooks that sleep for no time: they do nothing, and a kubelet of
// 1.34 refuses a static pod that has them (pkg/apis/core/validation/validation.go,
// validateSleepAction, v1.34.4).
func dropIdle(l *v1.Lifecycle) {
	if l == nil {
		return
	}
	for _, hook := range []**v1.LifecycleHandler{&l.PostStart, &l.PreStop} {
		if *hook != nil && (*hook).Sleep != nil && (*hook).Sleep.Seconds == 0 {
			*hook = nil
		}
	}
}

// sanitizePorts: on the host's network every port is a host port, and the
// kubelet rejects, for good, the second of two pods that declare one
// (k8s.io/kubernetes v1.37.2, pkg/kubelet/lifecycle/predicate.go). There, ports
// only inform. Elsewhere a host port is bound by the network plugin.
func sanitizePorts(spec *v1.PodSpec, c *v1.Container, at string) error {
	if spec.HostNetwork {
		c.Ports = nil
		return nil
	}
	for i, p := range c.Ports {
		if p.HostPort != 0 {
			return refused(Unsupported, fmt.Sprintf("%s.ports[%d].hostPort", at, i),
				"parent and checkpoint can't both have it; set hostNetwork: true")
		}
	}
	return nil
}

func resolvePorts(c *v1.Container, at string) error {
	probes := []struct {
		probe *v1.Probe
		name  string
	}{{c.LivenessProbe, "livenessProbe"}, {c.ReadinessProbe, "readinessProbe"}, {c.StartupProbe, "startupProbe"}}
	for _, p := range probes {
		if p.probe == nil {
			continue
		}
		if err := resolvePort(c, p.probe.HTTPGet, p.probe.TCPSocket, at+"."+p.name); err != nil {
			return err
		}
	}
	if c.Lifecycle == nil {
		return nil
	}
	hooks := []struct {
		hook *v1.LifecycleHandler
		name string
	}{{c.Lifecycle.PostStart, "postStart"}, {c.Lifecycle.PreStop, "preStop"}}
	for _, h := range hooks {
		if h.hook == nil {
			continue
		}
		if err := resolvePort(c, h.hook.HTTPGet, h.hook.TCPSocket, at+".lifecycle."+h.name); err != nil {
			return err
		}
	}
	return nil
}

// resolvePort makes a number of a port, as the kubelet does
// (pkg/probe/util.go, ResolveContainerPort, v1.37.2).
func resolvePort(c *v1.Container, get *v1.HTTPGetAction, socket *v1.TCPSocketAction, at string) error {
	resolve := func(port *intstr.IntOrString, at string) error {
		number := int(port.IntVal)
		if port.Type == intstr.String {
			i := slices.IndexFunc(c.Ports, func(p v1.ContainerPort) bool { return p.Name == port.StrVal })
			if i < 0 {
				return refused(Unsupported, at, "the container has no port named %q; use the number", port.StrVal)
			}
			number = int(c.Ports[i].ContainerPort)
		}
		if number < 1 || number > 65535 {
			return refused(Unsupported, at, "%d is no port; use 1 to 65535", number)
		}
		*port = intstr.FromInt32(int32(number))
		return nil
	}
	if get != nil {
		if err := resolve(&get.Port, at+".httpGet.port"); err != nil {
			return err
		}
	}
	if socket != nil {
		return resolve(&socket.Port, at+".tcpSocket.port")
	}
	return nil
}

// What a checkpoint asks for at most.
var (
	smallCPU    = resource.MustParse("10m")
	smallMemory = resource.MustParse("16Mi")
)

// sanitizeResources leaves limits of cpu and memory, and a small request beside
// each of them: the API machinery would else make the limit the request.
// Ephemeral storage goes, since the kubelet would count it twice.
func sanitizeResources(r *v1.ResourceRequirements, at string) error {
	lists := []struct {
		list *v1.ResourceList
		name string
	}{{&r.Limits, "limits"}, {&r.Requests, "requests"}}
	for _, l := range lists {
		for _, name := range sortedNames(*l.list) {
			switch name {
			case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage:
			default:
				return refused(Unsupported, fmt.Sprintf("%s.%s[%s]", at, l.name, name),
					"parent and checkpoint can't both have it; use cpu and memory alone")
			}
		}
	}
	limits, requests := v1.ResourceList{}, v1.ResourceList{}
	for name, small := range map[v1.ResourceName]resource.Quantity{v1.ResourceCPU: smallCPU, v1.ResourceMemory: smallMemory} {
		request, asked := r.Requests[name]
		if limit, ok := r.Limits[name]; ok {
			limits[name] = limit
			if !asked {
				request, asked = limit, true
			}
		}
		if !asked {
			continue
		}
		if request.Cmp(small) > 0 {
			request = small
		}
		requests[name] = request
	}
	*r = v1.ResourceRequirements{}
	if len(limits) > 0 {
		r.Limits = limits
	}
	if len(requests) > 0 {
		r.Requests = requests
	}
	return nil
}

func sortedNames(l v1.ResourceList) []v1.ResourceName {
	names := make([]v1.ResourceName, 0, len(l))
	for name := range l {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
