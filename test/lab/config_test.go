package lab

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

func TestConfigurationIsWellFormed(t *testing.T) {
	var kubelet map[string]any
	require.NoError(t, yaml.UnmarshalStrict([]byte(kubeletConfig("/podckpt-x", 500)), &kubelet))
	require.Equal(t, "/podckpt-x", kubelet["cgroupRoot"])
	require.EqualValues(t, 500, kubelet["maxPods"])
	require.Equal(t, map[string]any{
		"memory.available": "10Mi", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "1%",
	}, kubelet["evictionHard"])
	require.True(t, json.Valid([]byte(cniConfig())))
}

func TestRuntimeIsConfiguredInItsOwnVersionsTerms(t *testing.T) {
	for version, words := range map[string][]string{
		"1.6.20": {"version = 2\n", `sandbox_image = "` + pauseImage + `"`, `snapshotter.v1.zfs", "io.containerd.internal.v1.opt"`},
		"2.4.2":  {"version = 3\n", `sandbox = "` + pauseImage + `"`, `"io.containerd.cri.v1.runtime"]`},
	} {
		text := containerdConfig(version)
		for _, word := range append(words, `address = "`+criSocket+`"`, "restrict_oom_score_adj = true") {
			require.Contains(t, text, word, version)
		}
		require.NotContains(t, text, "%!", version)
	}
}

func TestOptionsNameEverythingWrong(t *testing.T) {
	_, err := Options{Name: "UP", Node: "a/b", Grace: 1500 * time.Millisecond, MaxPods: -1}.withDefaults()
	require.ErrorContains(t, err, `name must be lower-case letters, digits and dashes, at most 32, not "UP"`)
	require.ErrorContains(t, err, `not "a/b"`)
	require.ErrorContains(t, err, "grace must be whole seconds, not 1.5s")
	require.ErrorContains(t, err, "pods must be above 0, not -1")

	_, err = Options{Kubernetes: "v1.0.0", Containerd: "3"}.withDefaults()
	require.ErrorContains(t, err, `kubernetes must be v1.37.2 or v1.34.4, not "v1.0.0"`)
	require.ErrorContains(t, err, `containerd must be 2.4.2 or 1.6.20, not "3"`)
	_, err = Options{Kubernetes: "v1.34.4", KubernetesBin: "/elsewhere"}.withDefaults()
	require.ErrorContains(t, err, "exclude each other")
	o, err := Options{KubernetesBin: "/elsewhere"}.withDefaults()
	require.NoError(t, err)
	require.Empty(t, o.Kubernetes, "the folder has its own")

	t.Setenv("XDG_CACHE_HOME", "/elsewhere")
	o, err = Options{}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, "/elsewhere/pod-checkpointer", o.Cache)
	require.Equal(t, "lab", o.Name)
	require.Equal(t, "v1.37.2 2.4.2", o.Kubernetes+" "+o.Containerd)
	require.Equal(t, 110, o.MaxPods)
	o.Say("heard by nobody")
}

func TestCertificatesServeAndIdentify(t *testing.T) {
	p, err := newPKI("n1", net.ParseIP(nodeIP))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(p.ca)
	config, err := clientcmd.RESTConfigFromKubeConfig(p.files["kubelet.conf"])
	require.NoError(t, err)
	require.Equal(t, APIURL, config.Host)
	kubelet := parse(t, config.CertData)
	require.Equal(t, "system:node:n1", kubelet.Subject.CommonName)
	_, err = kubelet.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, err)
	server := parse(t, p.files["apiserver.crt"])
	_, err = server.Verify(x509.VerifyOptions{Roots: pool, DNSName: "127.0.0.1"})
	require.NoError(t, err)
}

func parse(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data)
	require.NotNil(t, block)
	c, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return c
}
