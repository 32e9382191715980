package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// artefacts are what a lab runs.
type artefacts struct {
	Checkout        string // the product's module
	Kubernetes      string // folder with kubernetesParts
	Version         string // of Kubernetes
	Containerd      string // folder with containerd, its shim and ctr
	Debian          string // folder with what Debian's packages hold: runc and CNI plugins
	Init            string // process 1 of the node
	Pause           string
	LockExec        string
	PodCheckpointer string // empty: no daemon
}

// makeArtefacts finds, builds or downloads all of them; the ones that change
// with the checkout are built into bin.
func makeArtefacts(ctx context.Context, o Options, bin string, say logf) (artefacts, error) {
	root, err := checkout(ctx)
	if err != nil {
		return artefacts{}, err
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return artefacts{}, err
	}
	made := artefacts{
		Checkout: root, Kubernetes: o.KubernetesBin, LockExec: o.LockExec, PodCheckpointer: o.PodCheckpointer,
		Init: filepath.Join(bin, "init"), Pause: filepath.Join(bin, "pause"),
	}
	c := cache{o.Cache}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		made.Debian, err = fetchDebian(ctx, c, say)
		if err == nil && o.Containerd == debianContainerd {
			made.Containerd, err = unpackedContainerd(ctx, made.Debian)
		}
		return err
	})
	if o.Containerd != debianContainerd {
		group.Go(func() (err error) {
			made.Containerd, err = buildContainerd(ctx, c, root, o.Containerd, say)
			return err
		})
	}
	group.Go(func() (err error) {
		if made.Kubernetes == "" {
			made.Kubernetes, err = buildKubernetes(ctx, c, root, o.Kubernetes, say)
		}
		if err == nil {
			made.Version, err = kubernetesVersion(ctx, made.Kubernetes)
		}
		return err
	})
	group.Go(func() error {
		builds := map[string]string{"./test/lab/node/init": made.Init, "./test/lab/node/pause": made.Pause}
		if made.LockExec == "" {
			made.LockExec = filepath.Join(bin, "lock-exec")
			builds["./cmd/lock-exec"] = made.LockExec
		}
		if made.PodCheckpointer == "" && !o.NoDaemon {
			made.PodCheckpointer = filepath.Join(bin, "pod-checkpointer")
			builds["./cmd/pod-checkpointer"] = made.PodCheckpointer
		}
		for pkg, out := range builds {
			if err := buildCommand(ctx, root, pkg, out); err != nil {
				return err
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return artefacts{}, err
	}
	return made, nil
}

// images are what the node's runtime must have, apart from the daemon's, which
// changes too often to be kept.
func (a artefacts) images() ([]image, error) {
	kubernetes, err := kubernetesImage(a.Kubernetes, a.Version)
	if err != nil {
		return nil, err
	}
	pause := image{
		Ref: pauseImage, Entry: []string{"/pause"},
		Files: []imageFile{{Path: "/pause", From: a.Pause}},
	}
	return []image{pause, kubernetes}, nil
}

// daemonImage is named for what is in it, so that a changed daemon is never
// taken for the one that the node has.
func (a artefacts) daemonImage() (image, error) {
	var img image
	var digests []string
	for _, from := range []string{a.PodCheckpointer, a.LockExec} {
		digest, err := fileDigest(from)
		if err != nil {
			return image{}, err
		}
		digests = append(digests, digest)
	}
	img.Ref = "lab.local/pod-checkpointer:" + keyOf(digests...)
	img.Files = []imageFile{
		{Path: "/usr/local/bin/pod-checkpointer", From: a.PodCheckpointer},
		{Path: "/usr/local/bin/lock-exec", From: a.LockExec},
	}
	return img, nil
}

// storeKey names a store of images by all that is in it and what made it.
func (a artefacts) storeKey() (string, error) {
	words := []string{"2", a.Debian, a.Containerd} // the number changes when the layout of images does
	for _, file := range []string{a.Pause, filepath.Join(a.Kubernetes, "kube-apiserver")} {
		digest, err := fileDigest(file)
		if err != nil {
			return "", fmt.Errorf("digest images: %w", err)
		}
		words = append(words, digest)
	}
	return keyOf(words...), nil
}
