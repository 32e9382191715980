package snapshot

import (
	"cmp"
	"math"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/pod-checkpointer/pod-checkpointer/lock/expand"
)

// guardProbes makes the probes of the container that takes the lock ask whether
// it holds it. Else they would be answered by the holder, or, while nobody
// answers, the kubelet would kill the one that waits for its turn.
//
// A startup probe gives way to a liveness probe that waits as long as it would
// have, but from when the lock was taken: waiting is no slow start.
func (l launch) guardProbes(spec *v1.PodSpec) error {
	c := l.container
	live := []string{"--live"}
	if window := startWindow(c); window > 0 {
		live = append(live, "--start-window", window.String())
	}
	if p := c.StartupProbe; p != nil && (p.HTTPGet != nil || p.TCPSocket != nil) {
		c.StartupProbe = nil
	}
	probes := []struct {
		probe *v1.Probe
		name  string
		flags []string
	}{
		{c.StartupProbe, "startupProbe", []string{"--live"}},
		{c.LivenessProbe, "livenessProbe", live},
		{c.ReadinessProbe, "readinessProbe", []string{"--ready"}},
	}
	for _, p := range probes {
		if p.probe == nil {
			continue
		}
		if err := seesItself(spec); err != nil {
			return err
		}
		if err := l.guardProbe(spec, p.probe, p.flags, l.at+"."+p.name); err != nil {
			return err
		}
	}
	return nil
}

// seesItself: we ask on the host's network, and lock-exec check asks about
// process 1, which must be the container's.
func seesItself(spec *v1.PodSpec) error {
	switch {
	case !spec.HostNetwork:
		return refused(Unsupported, "spec.hostNetwork", "probes of a pod with a lock are asked on the host's network; set it to true")
	case spec.HostPID:
		return refused(Unsupported, "spec.hostPID", "%s check could not tell who holds the lock; remove it", lockExec)
	case isTrue(spec.ShareProcessNamespace):
		return refused(Unsupported, "spec.shareProcessNamespace", "%s check could not tell who holds the lock; remove it", lockExec)
	}
	return nil
}

func (l launch) guardProbe(spec *v1.PodSpec, p *v1.Probe, flags []string, at string) error {
	if p.Exec != nil {
		return l.verifyCheck(spec, p.Exec.Command, flags[0], at+".exec.command")
	}
	scheme, address, err := target(p.ProbeHandler, at)
	if err != nil {
		return err
	}
	command := slices.Concat([]string{l.bin, "check"}, flags, []string{"--lock", l.file, "--", scheme, address})
	p.ProbeHandler = v1.ProbeHandler{Exec: &v1.ExecAction{Command: command}}
	return nil
}

// verifyCheck lets only lock-exec check pass, of the same lock.
func (l launch) verifyCheck(spec *v1.PodSpec, command []string, mode, at string) error {
	line, ok := checkLine(command)
	modes := line.flags
	if len(modes) == 0 {
		modes = []string{"--ready"} // lock-exec's default
	}
	switch {
	case !ok:
		return refused(Unsupported, at, "of a pod with a lock only httpGet, tcpSocket and %s check can be asked; use one of them", lockExec)
	case !slices.Equal(modes, []string{mode}):
		return refused(Unsupported, at, "it must ask %s check %s; correct it", lockExec, mode)
	case slices.ContainsFunc(command, refers):
		return refused(Unsupported, at, "variables are not known on the node; write them out")
	case len(line.locks) != 1:
		return refused(LockMismatch, at, "it must name the lock once; correct it")
	}
	file, err := hostFile(spec, l.container, line.locks[0], at)
	if err != nil {
		return err
	}
	if file != l.path {
		return refused(LockMismatch, at, "it asks about %s, but the container takes %s; make them the same file", file, l.path)
	}
	if _, ok := parseTarget(line.rest); !ok && (mode == "--ready" || len(line.rest) < 2 || line.rest[0] != "exec") {
		return refused(Unsupported, at, "it must end in -- and http or https with a URL, or tcp with host:port; correct it")
	}
	return nil
}

// checkLine reads a probe's command, as the kubelet hands it on; ok is false if that is
// no check of a lock. Another lock-exec, which sets variables, may stand before it.
func checkLine(command []string) (line commandLine, ok bool) {
	var words []string
	for _, word := range command {
		words = append(words, expand.Text(word, func(string) (string, bool) { return "", false }))
	}
	for len(words) > 1 && path.Base(words[0]) == lockExec {
		if words[1] == "check" {
			return partLine(words[2:]), true
		}
		if line = partLine(words[1:]); len(line.locks) > 0 {
			break
		}
		words = line.rest
	}
	return commandLine{}, false
}

// refers tells whether the kubelet would look for a variable.
func refers(word string) bool {
	return slices.ContainsFunc(expand.Parts(word), func(p expand.Part) bool { return p.Name })
}

// target words an httpGet or a tcpSocket, its port being a number, for
// lock-exec check.
func target(h v1.ProbeHandler, at string) (scheme, address string, err error) {
	switch {
	case h.HTTPGet != nil && len(h.HTTPGet.HTTPHeaders) > 0:
		return "", "", refused(Unsupported, at+".httpGet.httpHeaders", "of a pod with a lock a probe has no headers; remove them")
	case h.HTTPGet != nil && h.HTTPGet.Protocol != nil:
		return "", "", refused(Unsupported, at+".httpGet.protocol", "of a pod with a lock a probe chooses no protocol; remove it")
	case h.HTTPGet != nil:
		scheme, address = schemeOf(h.HTTPGet), getURL(h.HTTPGet)
	case h.TCPSocket != nil:
		scheme, address = "tcp", hostPort(h.TCPSocket.Host, h.TCPSocket.Port.IntVal)
	default:
		return "", "", refused(Unsupported, at, "of a pod with a lock only httpGet, tcpSocket and %s check can be asked; use one of them", lockExec)
	}
	// The kubelet expands $(NAME) in a command but not in a URL.
	if _, ok := parseTarget([]string{scheme, address}); !ok || strings.Contains(address, "$") {
		return "", "", refused(Unsupported, at, "%s %q can't be asked; give it a plain host and path", scheme, address)
	}
	return scheme, address, nil
}

// getURL is the URL that the kubelet would ask (pkg/probe/http/request.go,
// formatURL, v1.37.2).
func getURL(g *v1.HTTPGetAction) string {
	u, err := url.Parse(g.Path)
	if err != nil {
		u = &url.URL{Path: g.Path}
	}
	u.Scheme = schemeOf(g)
	u.Host = hostPort(g.Host, g.Port.IntVal)
	return u.String()
}

func schemeOf(g *v1.HTTPGetAction) string {
	return cmp.Or(strings.ToLower(string(g.Scheme)), "http")
}

// hostPort: on the host's network the pod's address is this node.
func hostPort(host string, port int32) string {
	host = cmp.Or(host, "127.0.0.1")
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(int(port))
}

// parseTarget reads the end of a check's command line: scheme and address.
func parseTarget(words []string) (Probe, bool) {
	if len(words) != 2 {
		return Probe{}, false
	}
	scheme, address := words[0], words[1]
	raw := address
	if scheme == "tcp" {
		raw = "tcp://" + address
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != scheme || u.Hostname() == "" || u.User != nil || u.Opaque != "" {
		return Probe{}, false
	}
	p := Probe{Scheme: scheme, Host: u.Host}
	switch scheme {
	case "tcp":
		return p, u.Port() != "" && u.Host == address
	case "http", "https":
		if u.Port() == "" {
			p.Host += map[string]string{"http": ":80", "https": ":443"}[scheme]
		}
		p.Path = u.RequestURI()
		return p, true
	}
	return Probe{}, false
}

// startWindow is how long the kubelet would wait for the container to start.
func startWindow(c *v1.Container) time.Duration {
	var window int64 // seconds
	if p := c.LivenessProbe; p != nil {
		window += int64(max(0, p.InitialDelaySeconds))
	}
	if p := c.StartupProbe; p != nil {
		window += int64(max(0, p.InitialDelaySeconds)) +
			int64(orDefault(p.FailureThreshold, 3))*int64(orDefault(p.PeriodSeconds, 10))
	}
	return time.Duration(min(window, math.MaxInt32)) * time.Second
}

// seconds is n, or where n is not above 0, the API's default.
func seconds(n, byDefault int32) time.Duration {
	return time.Duration(orDefault(n, byDefault)) * time.Second
}

func orDefault(n, byDefault int32) int32 {
	if n > 0 {
		return n
	}
	return byDefault
}
