package checkpoint

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func validConfig() Config {
	c := Defaults()
	c.Node = "master-1"
	return c
}

func TestDefaultsAreValid(t *testing.T) {
	require.NoError(t, validConfig().Validate())
}

// TestValidateNamesTheFlag has one wrong value for each way to be wrong, and
// what the operator reads.
func TestValidateNamesTheFlag(t *testing.T) {
	for _, tt := range []struct {
		says  string
		wrong func(*Config)
	}{
		{`--node-name must be the name of a node (lower case letters, digits, - and .), not ""`, func(c *Config) { c.Node = "" }},
		{`--node-name must be `, func(c *Config) { c.Node = "Master" }},
		{`--node-name must be `, func(c *Config) { c.Node = "master/../x" }},
		{`--static-pod-dir must be a clean absolute path below /, not "manifests"`, func(c *Config) { c.StaticPodDir = "manifests" }},
		{`--kubelet-dir must be a clean absolute path below /, not "/var/lib/../kubelet"`, func(c *Config) { c.KubeletDir = "/var/lib/../kubelet" }},
		{`--state-dir must be a clean absolute path below /, not "/"`, func(c *Config) { c.StateDir = "/" }},
		{`--lock-dir must be a clean absolute path below /, not ""`, func(c *Config) { c.LockDir = "" }},
		{`--proc must be a clean absolute path below /, not "/proc/"`, func(c *Config) { c.Proc = "/proc/" }},
		{`--kubeconfig must be an absolute path, not "conf"`, func(c *Config) { c.Kubeconfig = "conf" }},
		{`--cri-endpoint must be unix:// and the absolute path of a socket, not "/run/containerd/containerd.sock"`, func(c *Config) { c.CRIEndpoint = "/run/containerd/containerd.sock" }},
		{`--cri-endpoint must be `, func(c *Config) { c.CRIEndpoint = "tcp://127.0.0.1:1" }},
		{`--cri-endpoint must be `, func(c *Config) { c.CRIEndpoint = "unix://containerd.sock" }},
		{`--namespaces must be at least one namespace, not none`, func(c *Config) { c.Namespaces = nil }},
		{`--namespaces must be names of namespaces, not "../etc"`, func(c *Config) { c.Namespaces = []string{"kube-system", "../etc"} }},
		{`--socket must be a clean absolute path below /, not "daemon.sock"`, func(c *Config) { c.Socket = "daemon.sock" }},
		{`--socket must be a path of at most 107 bytes, not "/run/`, func(c *Config) { c.Socket = "/run/" + strings.Repeat("x", 103) }},
		{`--api-endpoint must be an https URL without a path, such as https://10.0.0.1:6443 or https://[fd00::1]:6443, not "http://10.0.0.1:6443"`, func(c *Config) { c.APIEndpoint = "http://10.0.0.1:6443" }},
		{`--api-endpoint must be `, func(c *Config) { c.APIEndpoint = "10.0.0.1:6443" }},
		{`--api-endpoint must be `, func(c *Config) { c.APIEndpoint = "https://:6443" }},
		{`--api-endpoint must be `, func(c *Config) { c.APIEndpoint = "https://10.0.0.1:6443/api?x=y" }},
		{`--api-endpoint must be `, func(c *Config) { c.APIEndpoint = "https://root:secret@10.0.0.1:6443" }},
		{`--listen must be ADDRESS:PORT with an address of loopback, not "10299"`, func(c *Config) { c.Listen = "10299" }},
		{`--poll must be at least 100ms, not 0s`, func(c *Config) { c.Poll = 0 }},
		{`--poll must be at most 10s, not 1m1s`, func(c *Config) { c.Poll = 61 * time.Second }},
		{`--known-good-after must be at least 1s, not -1s`, func(c *Config) { c.KnownGoodAfter = -time.Second }},
		{`--activate-after must be at least 0s, not -1ns`, func(c *Config) { c.ActivateAfter = -1 }},
		{`--start-timeout must be at least 1s, not 0s`, func(c *Config) { c.StartTimeout = 0 }},
		{`--handoff-settle must be at least 0s, not -1ns`, func(c *Config) { c.HandoffSettle = -1 }},
		{`--handoff-timeout must be at most 24h0m0s, not 48h0m0s`, func(c *Config) { c.HandoffTimeout = 48 * time.Hour }},
	} {
		t.Run(tt.says, func(t *testing.T) {
			c := validConfig()
			tt.wrong(&c)
			err := c.Validate()
			require.ErrorContains(t, err, tt.says)
			require.Len(t, strings.Split(err.Error(), "\n"), 1, "what is right is not named")
		})
	}
}

func TestValidateNamesAllAtOnce(t *testing.T) {
	err := Config{}.Validate()
	for _, flag := range []string{"node-name", "static-pod-dir", "kubelet-dir", "state-dir", "lock-dir", "proc", "socket", "cri-endpoint", "namespaces", "listen", "poll", "known-good-after", "start-timeout", "handoff-timeout"} {
		require.ErrorContains(t, err, "--"+flag+" must be ")
	}
}

func TestEndpointsOfTheAPI(t *testing.T) {
	for _, url := range []string{"https://10.0.0.1:6443", "https://[fd00::1]:6443", "https://api.example"} {
		c := validConfig()
		c.APIEndpoint = url
		require.NoError(t, c.Validate(), url)
	}
}

func TestAnEndpointGetsItsBrackets(t *testing.T) {
	for given, want := range map[string]string{
		"https://fd00::1:6443":            "https://[fd00::1]:6443",
		"https://fd00:0:0:0:0:0:0:1:6443": "https://[fd00:0:0:0:0:0:0:1]:6443",
		"https://::1:6443":                "https://[::1]:6443",
		"https://::ffff:10.0.0.1:6443":    "https://[::ffff:10.0.0.1]:6443",
		"https://[fd00::1]:6443":          "https://[fd00::1]:6443",
		"https://[fd00::1]":               "https://[fd00::1]",
		"https://10.0.0.1:6443":           "https://10.0.0.1:6443",
		"https://api.example:6443":        "https://api.example:6443",
		"":                                "",
	} {
		c := validConfig()
		c.APIEndpoint = Bracketed(given)
		require.Equal(t, want, c.APIEndpoint)
		require.NoError(t, c.Validate(), given)
	}
	for _, wrong := range []string{
		"https://fd00::1:", "https://fd00::1:6443/api", "https://fd00::1:port", "https://fd00:0:0:0:0:0:0:1",
		"https://fe80::1%eth0:6443", "http://fd00::1:6443",
	} {
		c := validConfig()
		c.APIEndpoint = Bracketed(wrong)
		require.ErrorContains(t, c.Validate(), "--api-endpoint must be ", wrong)
	}
}

func TestLimitsAreTheFlags(t *testing.T) {
	c := Config{KnownGoodAfter: 1, ActivateAfter: 2, StartTimeout: 3, HandoffSettle: 4, HandoffTimeout: 5}
	require.Equal(t, Limits{KnownGoodAfter: 1, ActivateAfter: 2, StartTimeout: 3, HandoffSettle: 4, HandoffTimeout: 5}, c.limits())
}
