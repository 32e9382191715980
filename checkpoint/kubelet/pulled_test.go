package kubelet

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// writeRecord puts a file where the kubelet keeps that of an image.
func writeRecord(t *testing.T, kubeletDir, kind, of, content string) {
	t.Helper()
	dir := filepath.Join(kubeletDir, "image_manager", kind)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(of)))), []byte(content), 0o600))
}

const beta, alpha = "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"

func recorded(version, id, mapping string) string {
	return fmt.Sprintf(`{"kind":"ImagePulledRecord","apiVersion":%q,"lastUpdatedTime":"2026-10-21T12:26:40Z","imageRef":%q,"credentialMapping":{%s}}`, version, id, mapping)
}

const (
	bySecret = `{"kubernetesSecrets":[{"uid":"u","namespace":"kube-system","name":"registry","credentialHash":"h"}]}`
	byAnyone = `{"nodePodsAccessible":true}`
)

func TestRegistryIsAskedWhereTheRecordWantsCredentials(t *testing.T) {
	const id = "sha256:1"
	for _, tt := range []struct {
		name, image, record string
		asks                bool
	}{
		{"no record: not pulled by the kubelet", "r.example/a:1", "", false},
		{"pulled with a Secret", "r.example/a:1", recorded(beta, id, `"r.example/a":`+bySecret), true},
		{"the same by an earlier kubelet", "r.example/a:1", recorded(alpha, id, `"r.example/a":`+bySecret), true},
		{"pulled with a service account", "r.example/a:1", recorded(beta, id, `"r.example/a":{"kubernetesServiceAccounts":[{"uid":"u","namespace":"n","name":"s"}]}`), true},
		{"pulled without", "r.example/a:1", recorded(beta, id, `"r.example/a":`+byAnyone), false},
		{"port, tag and digest are no part of the name", "r.example:5000/a:1@sha256:2", recorded(beta, id, `"r.example:5000/a":`+byAnyone), false},
		{"no tag", "r.example:5000/a", recorded(beta, id, `"r.example:5000/a":`+byAnyone), false},
		{"pulled without, under another name", "r.example/b:1", recorded(beta, id, `"r.example/a":`+byAnyone), true},
		{"nobody knows how it was pulled", "r.example/a:1", recorded(beta, id, ""), true},
		{"a record of another image", "r.example/a:1", recorded(beta, "sha256:2", `"r.example/a":`+bySecret), false},
		{"a short name, by an earlier kubelet", "busybox:1", recorded(alpha, id, `"docker.io/library/busybox":`+byAnyone), false},
		{"a short name, by a later one", "busybox:1", recorded(beta, id, `"busybox":`+byAnyone), false},
		{"whatever it looks for", "busybox:1", recorded(beta, id, `"docker.io/library/busybox":`+bySecret), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.record != "" {
				writeRecord(t, dir, "pulled", id, tt.record)
			}
			asks, err := AsksRegistry(dir, tt.image, id)
			require.NoError(t, err)
			require.Equal(t, tt.asks, asks)
		})
	}
}

func TestRecordThatNobodyCanReadTellsNothing(t *testing.T) {
	const id = "sha256:1"
	for name, record := range map[string]string{
		"empty":         "",
		"torn":          `{"kind":"ImagePulledRecord","apiV`,
		"newer":         recorded("kubelet.config.k8s.io/v1", id, `"r.example/a":`+byAnyone),
		"unknown field": recorded(beta, id, `"r.example/a":{"nodePodsAccessible":true,"unless":"x"}`),
		"another kind":  `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1"}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeRecord(t, dir, "pulled", id, record)
			_, err := AsksRegistry(dir, "r.example/a:1", id)
			require.ErrorContains(t, err, "the kubelet's pull record of r.example/a:1")
		})
	}
	dir := t.TempDir()
	writeRecord(t, dir, "pulled", id, recorded(beta, id, `"docker.io/library/busybox":`+byAnyone))
	_, err := AsksRegistry(dir, "busybox:1", id)
	require.ErrorContains(t, err, "names it docker.io/library/busybox")
	dir = t.TempDir()
	writeRecord(t, dir, "pulling", "r.example/a:1", `{"kind":"ImagePullIntent"}`)
	_, err = AsksRegistry(dir, "r.example/a:1", id)
	require.ErrorContains(t, err, "pulls the image, or was interrupted")
	_, err = AsksRegistry(dir, "r.example/a:2", id)
	require.NoError(t, err)
}

func TestNormalizedNames(t *testing.T) {
	for name, want := range map[string]string{
		"busybox": "docker.io/library/busybox", "me/busybox": "docker.io/me/busybox", "docker.io/busybox": "docker.io/library/busybox",
		"index.docker.io/a/b": "docker.io/a/b", "localhost/a": "localhost/a", "r.example/a/b": "r.example/a/b", "host:5000/a": "host:5000/a",
	} {
		require.Equal(t, want, normalized(name))
	}
}

func TestPolicyOfTheKubeletDecidesWhichImagesItVerifies(t *testing.T) {
	const id = "sha256:1"
	for _, tt := range []struct {
		name, config  string
		without, with bool // asks of an image without a record, and of one with somebody's
	}{
		{"no file", "", false, true},
		{"default", "kind: KubeletConfiguration", false, true},
		{"named", "imagePullCredentialsVerificationPolicy: NeverVerifyPreloadedImages", false, true},
		{"never", "imagePullCredentialsVerificationPolicy: NeverVerify", false, false},
		{"always", "imagePullCredentialsVerificationPolicy: AlwaysVerify", true, true},
		{"allowlist", "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [r.example/a]", false, false},
		{"allowlist by prefix", "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [r.example/*]", false, false},
		{"allowlist of others", "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [r.example/ab, r.example/a/*]", true, true},
		{"switched off", "featureGates: {KubeletEnsureSecretPulledImages: false}", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.config != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(tt.config), 0o600))
			}
			asks, err := AsksRegistry(dir, "r.example/a:1", id)
			require.NoError(t, err)
			require.Equal(t, tt.without, asks)
			writeRecord(t, dir, "pulled", id, recorded(beta, id, `"r.example/a":`+bySecret))
			asks, err = AsksRegistry(dir, "r.example/a:1", id)
			require.NoError(t, err)
			require.Equal(t, tt.with, asks)
		})
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("- a\n- b"), 0o600))
	_, err := AsksRegistry(dir, "r.example/a:1", id)
	require.ErrorContains(t, err, "the kubelet's configuration")
}
