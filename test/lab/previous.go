package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// PreviousCommit is the version that users upgrade from, and go back to. It moves
// on with each release: the new one is the last commit of the release before. From
// the first one on that has manifests/base, [Lab.PlacePrevious] has no static pod
// to place, and both ways become an apply of a DaemonSet with the other image.
const PreviousCommit = "d1c45cf6c7651fe14a3400f019bc930827565170"

// ErrNoHistory is the error of Previous where the checkout does not hold the commit.
var ErrNoHistory = errors.New("the checkout has no such commit")

// Earlier is the product as it was at a commit.
type Earlier struct {
	LockExec, PodCheckpointer string // static programs
	RBAC                      string // file of its rights
	StaticPod                 string // file of the daemon
}

// Previous builds the product as it was at PreviousCommit, or finds it in the cache.
func (l *Lab) Previous(ctx context.Context) (Earlier, error) {
	return earlier(ctx, cache{l.options.Cache}, l.made.Checkout, PreviousCommit)
}

func earlier(ctx context.Context, c cache, root, commit string) (Earlier, error) {
	dir, err := c.get(ctx, "earlier", keyOf(commit, runtime.Version(), runtime.GOARCH), func(into string) error {
		if _, err := output(ctx, root, "git", "cat-file", "-e", commit+"^{commit}"); err != nil {
			return fmt.Errorf("%w %s (git fetch --unshallow): %w", ErrNoHistory, commit, err)
		}
		source := filepath.Join(into, "source")
		if err := os.Mkdir(source, 0o755); err != nil {
			return err
		}
		archive := filepath.Join(into, "source.tar")
		if _, err := output(ctx, root, "git", "archive", "--format=tar", "--output="+archive, commit); err != nil {
			return err
		}
		if _, err := output(ctx, source, "tar", "--extract", "--file="+archive); err != nil {
			return err
		}
		for _, name := range []string{"lock-exec", "pod-checkpointer"} {
			if err := buildCommand(ctx, source, "./cmd/"+name, filepath.Join(into, name)); err != nil {
				return fmt.Errorf("commit %s: %w", commit, err)
			}
		}
		err := os.Rename(filepath.Join(source, "manifests"), filepath.Join(into, "manifests"))
		return errors.Join(err, os.Remove(archive), removeAll(source))
	})
	return Earlier{
		LockExec: filepath.Join(dir, "lock-exec"), PodCheckpointer: filepath.Join(dir, "pod-checkpointer"),
		RBAC: filepath.Join(dir, "manifests/rbac.yaml"), StaticPod: filepath.Join(dir, "manifests/pod-checkpointer.yaml"),
	}, err
}

// PlacePrevious makes the earlier daemon a static pod, as its manifest says: with
// its image, Options.DaemonFlags, and a kubeconfig for the user of its RBAC.
func (l *Lab) PlacePrevious(ctx context.Context, e Earlier) error {
	img, err := artefacts{LockExec: e.LockExec, PodCheckpointer: e.PodCheckpointer}.daemonImage()
	if err != nil {
		return err
	}
	if err := l.importImage(ctx, img); err != nil {
		return err
	}
	if err := l.actAs("pod-checkpointer", filepath.Join(l.diskDir(), "/etc/kubernetes/pod-checkpointer.conf")); err != nil {
		return err
	}
	text, err := os.ReadFile(e.StaticPod)
	if err != nil {
		return err
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(text, pod); err != nil {
		return fmt.Errorf("read %s: %w", e.StaticPod, err)
	}
	container := &pod.Spec.Containers[0]
	container.Image = img.Ref
	container.Command = append(container.Command, l.options.DaemonFlags...)
	return l.PlaceManifest(filepath.Base(e.StaticPod), pod)
}

// actAs writes a kubeconfig by which the administrator acts as a user, and has no
// more than that user's rights: the key of the cluster's authority, which could
// issue a certificate, is gone when the cluster is up.
func (l *Lab) actAs(user, path string) error {
	config, err := clientcmd.LoadFromFile(filepath.Join(l.diskDir(), "/etc/kubernetes/admin.conf"))
	if err != nil {
		return err
	}
	for _, auth := range config.AuthInfos {
		auth.Impersonate = user
	}
	text, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
