package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuildThatFailsSaysWhy(t *testing.T) {
	cmd := exec.Command("sh", "-c", "echo one/package >&2; echo 'x.go:1: no such thing' >&2; exit 1")
	err := runCounting(cmd, "x", 2, func(string, ...any) {})
	require.ErrorContains(t, err, "x.go:1: no such thing")
	require.NotContains(t, err.Error(), "one/package")
	require.NoError(t, runCounting(exec.Command("true"), "x", 0, func(string, ...any) {}))
}

func TestVersionIsStampedWhereKubernetesLooks(t *testing.T) {
	flags := versionFlags("v1.37.2")
	for _, want := range []string{"version.gitVersion=v1.37.2", "version.gitMajor=1 ", "version.gitMinor=37 "} {
		require.Contains(t, flags, want)
	}
}

func TestProgramsThatAreOneFileStayOne(t *testing.T) {
	l := sample(t, Options{})
	img, err := kubernetesImage(l.made.Kubernetes, "v1.37.2+x")
	require.NoError(t, err)
	require.Equal(t, "lab.local/kubernetes:v1.37.2_x", img.Ref, "a tag has no plus")
	var real, links []string
	for _, f := range img.Files {
		if f.Link == "" {
			real = append(real, f.Path)
		} else {
			links = append(links, fmt.Sprintf("%s->%s", f.Path, f.Link))
		}
	}
	require.Equal(t, []string{"/usr/local/bin/etcd"}, real)
	require.Len(t, links, len(kubernetesParts)-1)
	require.Contains(t, links, "/usr/local/bin/kube-apiserver->etcd")
}

func TestWhatIsBuiltIsNamedByItsSources(t *testing.T) {
	keys := map[string]bool{}
	for _, m := range []nested{kubernetesModule("../..", "v1.37.2"), kubernetesModule("../..", "v1.34.4"), containerdModule("../..")} {
		key, err := m.key()
		require.NoError(t, err)
		require.Len(t, key, 16)
		require.False(t, keys[key], "another has it too")
		keys[key] = true
	}
	_, err := kubernetesModule(t.TempDir(), "v1.37.2").key()
	require.Error(t, err)

	m := nested{dir: t.TempDir(), files: []string{"main.go"}}
	require.NoError(t, os.WriteFile(filepath.Join(m.dir, "main.go"), nil, 0o600))
	before, err := m.key()
	require.NoError(t, err)
	m.flags = []string{"-tags=other"}
	after, err := m.key()
	require.NoError(t, err)
	require.NotEqual(t, before, after)
}

func TestEveryVersionIsThatOfItsModule(t *testing.T) {
	for _, version := range KubernetesVersions {
		requireModule(t, kubernetesModule("../..", version), "k8s.io/kubernetes "+version)
	}
	for _, version := range ContainerdVersions {
		if version != debianContainerd {
			requireModule(t, containerdModule("../.."), "github.com/containerd/containerd/v2 v"+version)
		}
	}
}

func requireModule(t *testing.T, m nested, line string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.dir, m.files[0]))
	require.NoError(t, err)
	require.Regexp(t, `\t`+regexp.QuoteMeta(line)+`( // indirect)?\n`, string(text))
}
