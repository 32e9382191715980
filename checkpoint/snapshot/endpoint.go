package snapshot

import (
	"cmp"
	"net/url"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Where clients in a pod look for the API server. The kubelet sets both from the
// Service kubernetes, which it does not know before it has reached an API server
// (pkg/kubelet/kubelet_pods.go, getServiceEnvVarMap, v1.37.2), and to whose
// address nothing leads at that time.
const (
	envHost = "KUBERNETES_SERVICE_HOST"
	envPort = "KUBERNETES_SERVICE_PORT"
)

// tellEndpoint leads the clients of a checkpoint to the API server of this node:
// those in containers that mount a service account, or name its address, and that are
// not told otherwise. The two variables come first, since others may be made of them.
func tellEndpoint(spec *v1.PodSpec, envs []environment, from source) error {
	parent := &from.pod.Spec
	made := allContainers(spec)
	for i, c := range allContainers(parent) {
		if !mountsAccount(parent, c.Container) && !envs[i].asksEndpoint {
			continue
		}
		static, at := made[i], c.at+".env"
		_, host := envs[i].variables[envHost]
		_, port := envs[i].variables[envPort]
		switch {
		case host && port:
			continue
		case host || port:
			return refused(Unsupported, at, "of %s and %s it sets but one, and the other one's value comes from the API server; set both", envHost, envPort)
		}
		u, err := url.Parse(from.endpoint)
		if err != nil || u.Hostname() == "" {
			return refused(MissingEndpoint, at, "no address of the API server on this node is known for its client here; set --api-endpoint, or %s and %s", envHost, envPort)
		}
		if !parent.HostNetwork && isLoopback(u.Hostname()) {
			return refused(MissingEndpoint, at, "in a network of its own the pod can't reach %s; let --api-endpoint be an address of the node, or set %s and %s", u.Host, envHost, envPort)
		}
		static.Env = slices.Insert(static.Env, 0,
			v1.EnvVar{Name: envHost, Value: u.Hostname()},
			v1.EnvVar{Name: envPort, Value: cmp.Or(u.Port(), "443")})
	}
	return nil
}

// mountsAccount: a token of any kind stands for a client, and so does whatever is
// mounted where all of them look for one, such as the Secret of a token without end.
func mountsAccount(spec *v1.PodSpec, c *v1.Container) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool {
		return path.Clean(m.MountPath) == accountPath || slices.ContainsFunc(spec.Volumes, func(v v1.Volume) bool { return v.Name == m.Name && hasToken(v) })
	})
}

func isLoopback(host string) bool {
	return host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.")
}
