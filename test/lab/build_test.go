package lab

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuildThatFailsSaysWhy(t *testing.T) {
	cmd := exec.Command("sh", "-c", "echo one/package >&2; echo 'x.go:1: no such thing' >&2; exit 1")
	err := runCounting(cmd, 2, func(string, ...any) {})
	require.ErrorContains(t, err, "x.go:1: no such thing")
	require.NotContains(t, err.Error(), "one/package")
	require.NoError(t, runCounting(exec.Command("true"), 0, func(string, ...any) {}))
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
	require.Equal(t, "lab.local/kube-apiserver:v1.37.2_x", img.Ref, "a tag has no plus")
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

func TestKeyOfKubernetesFollowsItsSources(t *testing.T) {
	dir, key, err := kubernetesModule("../..")
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(dir, "test/lab/kubernetes"))
	require.Len(t, key, 16)
	_, _, err = kubernetesModule(t.TempDir())
	require.Error(t, err)
}
