package checkpoint

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Config is what the flags of `pod-checkpointer run` set.
type Config struct {
	Node         string   // the node's name, as the API server knows it
	Kubeconfig   string   // credentials for the API server; "": the pod's service account, else StateDir/kubeconfig
	APIEndpoint  string   // https URL of the API server for in-cluster clients; "": not set
	Service      string   // https URL of the API server as a pod's environment has it; "": in no pod. No flag
	CRIEndpoint  string   // unix:// socket of a runtime that speaks CRI v1
	StaticPodDir string   // the kubelet's staticPodPath
	KubeletDir   string   // the kubelet's root directory, for its sockets
	StateDir     string   // generations
	LockDir      string   // lock files, one a workload
	BinDir       string   // where lock-exec stands on the host
	Proc         string   // the host's procfs
	Namespaces   []string // where the annotation counts
	Listen       string   // host:port of /healthz, /readyz and /status, while this copy leads
	Socket       string   // unix socket of the same, and always

	Poll           time.Duration // the beat under the hints, 100ms to 10s
	KnownGoodAfter time.Duration // a parent that is ready for so long proves its generation
	ActivateAfter  time.Duration // without a lock, a parent is gone for so long before a start
	StartTimeout   time.Duration // a started checkpoint is ready by then
	HandoffSettle  time.Duration // a checkpoint serves for so long before it hands over
	HandoffTimeout time.Duration // a parent that took over is ready by then

	DryRun bool // decide and say; start, stop and write nothing
}

// Defaults are the flags' defaults, but for the node's name.
func Defaults() Config {
	return Config{
		CRIEndpoint:    "unix:///run/containerd/containerd.sock",
		StaticPodDir:   "/etc/kubernetes/manifests",
		KubeletDir:     "/var/lib/kubelet",
		StateDir:       "/var/lib/pod-checkpointer",
		LockDir:        "/run/lock/pod-checkpointer",
		BinDir:         "/opt/pod-checkpointer/bin",
		Proc:           "/proc",
		Namespaces:     []string{"kube-system"},
		Listen:         "127.0.0.1:10299",
		Socket:         "/run/pod-checkpointer/daemon.sock",
		Poll:           time.Second,
		KnownGoodAfter: time.Minute,
		ActivateAfter:  30 * time.Second,
		StartTimeout:   time.Minute,
		HandoffSettle:  10 * time.Second,
		HandoffTimeout: time.Minute,
	}
}

// Validate names everything that is wrong, each by its flag.
func (c Config) Validate() error {
	var wrong []error
	bad := func(flag, allowed string, got any) {
		wrong = append(wrong, fmt.Errorf("--%s must be %s, not %v", flag, allowed, got))
	}
	if validation.IsDNS1123Subdomain(c.Node) != nil {
		bad("node-name", "the name of a node (lower case letters, digits, - and .)", fmt.Sprintf("%q", c.Node))
	}
	for _, dir := range []struct{ flag, path string }{
		{"static-pod-dir", c.StaticPodDir}, {"kubelet-dir", c.KubeletDir}, {"state-dir", c.StateDir},
		{"lock-dir", c.LockDir}, {"bin-dir", c.BinDir}, {"proc", c.Proc}, {"socket", c.Socket},
	} {
		if !filepath.IsAbs(dir.path) || filepath.Clean(dir.path) != dir.path || dir.path == "/" {
			bad(dir.flag, "a clean absolute path below /", fmt.Sprintf("%q", dir.path))
		}
	}
	if c.Kubeconfig != "" && !filepath.IsAbs(c.Kubeconfig) {
		bad("kubeconfig", "an absolute path", fmt.Sprintf("%q", c.Kubeconfig))
	}
	if len(c.Socket) > longestSocket {
		bad("socket", fmt.Sprintf("a path of at most %d bytes", longestSocket), fmt.Sprintf("%q", c.Socket))
	}
	if c.APIEndpoint != "" && !endpoint(c.APIEndpoint) {
		bad("api-endpoint", "an https URL without a path, such as https://10.0.0.1:6443 or https://[fd00::1]:6443", fmt.Sprintf("%q", c.APIEndpoint))
	}
	if socket, ok := strings.CutPrefix(c.CRIEndpoint, "unix://"); !ok || !filepath.IsAbs(socket) {
		bad("cri-endpoint", "unix:// and the absolute path of a socket", fmt.Sprintf("%q", c.CRIEndpoint))
	}
	if len(c.Namespaces) == 0 {
		bad("namespaces", "at least one namespace", "none")
	}
	for _, name := range c.Namespaces {
		if validation.IsDNS1123Label(name) != nil {
			bad("namespaces", "names of namespaces", fmt.Sprintf("%q", name))
		}
	}
	if !loopback(c.Listen) {
		bad("listen", "ADDRESS:PORT with an address of loopback", fmt.Sprintf("%q", c.Listen))
	}
	wrong = append(wrong, c.durations()...)
	return errors.Join(wrong...)
}

// longestSocket is what the kernel takes for the path of a socket (unix(7)).
const longestSocket = 107

// Bracketed puts the brackets around the IPv6 address of an https URL that has none,
// but a port: https://fd00::1:6443 is https://[fd00::1]:6443, so that one manifest with
// $(HOST_IP):6443 is right for either family. Any other text comes back as it is.
func Bracketed(endpoint string) string {
	authority, ok := strings.CutPrefix(endpoint, "https://")
	colon := strings.LastIndexByte(authority, ':')
	if !ok || colon < 0 {
		return endpoint
	}
	host, port := authority[:colon], authority[colon+1:]
	if ip, err := netip.ParseAddr(host); err != nil || !ip.Is6() || ip.Zone() != "" || port == "" {
		return endpoint
	}
	return "https://" + net.JoinHostPort(host, port)
}

// endpoint: a client appends the paths of the API to it, and brings credentials.
func endpoint(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Hostname() != "" && u.User == nil && text == "https://"+u.Host
}

// loopback: what is served tells of this node's insides, and asks nobody who they are.
func loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

func (c Config) durations() []error {
	var wrong []error
	for _, d := range []struct {
		flag       string
		got        time.Duration
		least, top time.Duration
	}{
		{"poll", c.Poll, 100 * time.Millisecond, 10 * time.Second},
		{"known-good-after", c.KnownGoodAfter, time.Second, 24 * time.Hour},
		{"activate-after", c.ActivateAfter, 0, 24 * time.Hour},
		{"start-timeout", c.StartTimeout, time.Second, 24 * time.Hour},
		{"handoff-settle", c.HandoffSettle, 0, 24 * time.Hour},
		{"handoff-timeout", c.HandoffTimeout, time.Second, 24 * time.Hour},
	} {
		if d.got < d.least {
			wrong = append(wrong, fmt.Errorf("--%s must be at least %s, not %s", d.flag, d.least, d.got))
		}
		if d.got > d.top {
			wrong = append(wrong, fmt.Errorf("--%s must be at most %s, not %s", d.flag, d.top, d.got))
		}
	}
	return wrong
}

func (c Config) limits() Limits {
	return Limits{
		KnownGoodAfter: c.KnownGoodAfter, ActivateAfter: c.ActivateAfter, StartTimeout: c.StartTimeout,
		HandoffSettle: c.HandoffSettle, HandoffTimeout: c.HandoffTimeout,
	}
}
