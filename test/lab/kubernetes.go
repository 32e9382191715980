package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// KubernetesVersions are those that a lab can run, the default first.
var KubernetesVersions = []string{"v1.37.2", "v1.34.4"}

// kubernetesParts are the programs of a control plane, by the name that the
// lab starts them under.
var kubernetesParts = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl",
}

// kubernetesModule builds one program that is all parts of a version.
func kubernetesModule(root, version string) nested {
	m := nested{dir: filepath.Join(root, "test", "lab", "kubernetes"), pkg: ".", files: []string{"go.mod", "go.sum", "main.go"}}
	if version != KubernetesVersions[0] {
		m.flags = []string{"-modfile=" + version + ".mod"}
		m.files = []string{version + ".mod", version + ".sum", "main.go"}
	}
	return m
}

// buildKubernetes returns a folder that holds a program for each of kubernetesParts.
func buildKubernetes(ctx context.Context, c cache, root, version string, say logf) (string, error) {
	m := kubernetesModule(root, version)
	key, err := m.key()
	if err != nil {
		return "", err
	}
	return c.get(ctx, "kubernetes", key, func(into string) error {
		say("build Kubernetes %s and its etcd: about 9 minutes on 2 cores the first time, a moment when Go's cache is warm", version)
		if err := m.build(ctx, filepath.Join(into, "kubernetes"), versionFlags(version), say); err != nil {
			return fmt.Errorf("build Kubernetes: %w", err)
		}
		for _, part := range kubernetesParts {
			if err := os.Symlink("kubernetes", filepath.Join(into, part)); err != nil {
				return err
			}
		}
		return nil
	})
}

// versionFlags stamp the version; unstamped programs call themselves v0.0.0.
func versionFlags(version string) string {
	numbers := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	base := "-X k8s.io/component-base/version."
	return base + "gitVersion=" + version + " " + base + "gitMajor=" + numbers[0] + " " +
		base + "gitMinor=" + numbers[1] + " -X k8s.io/client-go/pkg/version.gitVersion=" + version
}

// kubernetesVersion asks the API server's program.
func kubernetesVersion(ctx context.Context, dir string) (string, error) {
	text, err := output(ctx, "/", filepath.Join(dir, "kube-apiserver"), "--version")
	if err != nil {
		return "", err
	}
	fields := strings.Fields(text)
	if len(fields) != 2 || fields[0] != "Kubernetes" {
		return "", fmt.Errorf("ask kube-apiserver for its version: unexpected answer %q", text)
	}
	return fields[1], nil
}

// kubernetesImage holds the control plane's programs. Those that are one file
// under several names stay one.
func kubernetesImage(dir, version string) (image, error) {
	img := image{Ref: "lab.local/kubernetes:" + strings.ReplaceAll(version, "+", "_")}
	first := map[string]string{}
	for _, part := range kubernetesParts {
		real, err := filepath.EvalSymlinks(filepath.Join(dir, part))
		if err != nil {
			return image{}, err
		}
		file := imageFile{Path: "/usr/local/bin/" + part, From: real}
		if other, ok := first[real]; ok {
			file = imageFile{Path: file.Path, Link: other}
		} else {
			first[real] = part
		}
		img.Files = append(img.Files, file)
	}
	return img, nil
}
