package lab

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Options say what a lab is made of. The zero value is a good one.
type Options struct {
	// Name tells labs on one machine apart: folder, namespaces and cgroups
	// carry it. Default "lab".
	Name string
	// Node is the node's name, as the API knows it. Default "master".
	Node string
	// Cache is the folder for what is slow to make, and for the labs
	// themselves. Default $XDG_CACHE_HOME/pod-checkpointer, else
	// ~/.cache/pod-checkpointer.
	Cache string
	// Kubernetes is one of KubernetesVersions, which is built, and its etcd
	// with it. Default: the first.
	Kubernetes string
	// Containerd is one of ContainerdVersions: the first is built, the other is
	// Debian's. Debian's runc and CNI plugins serve both. Default: the first.
	Containerd string
	// KubernetesBin is a folder with etcd, kube-apiserver,
	// kube-controller-manager, kube-scheduler, kubelet and kubectl, static ones,
	// to be used instead of Kubernetes.
	KubernetesBin string
	// LockExec and PodCheckpointer are ready, static programs. Empty: they are
	// built from the checkout.
	LockExec, PodCheckpointer string
	// StaticControlPlane runs the control plane as plain static pods without
	// lock-exec instead of DaemonSets: what no self-hosted one can beat.
	StaticControlPlane bool
	// NoDaemon leaves pod-checkpointer's static pod out.
	NoDaemon bool
	// DaemonFlags are added to pod-checkpointer's command.
	DaemonFlags []string
	// Grace replaces the API server's terminationGracePeriodSeconds. Whole
	// seconds; 0: as in the manifest.
	Grace time.Duration
	// MaxPods is how many pods the kubelet takes. Default 110, as the kubelet's own.
	MaxPods int
	// Say is told what is being done, a line at a time. Nil: nobody is.
	Say func(line string) `json:"-"`
}

// logf is Options.Say with a format.
type logf func(format string, args ...any)

// nameRule keeps names short enough for host names, and free of what has a
// meaning in paths and in cgroups.
var nameRule = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// withDefaults fills what is empty and joins everything that is wrong.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	if o.Name == "" {
		o.Name = "lab"
	}
	if o.Node == "" {
		o.Node = "master"
	}
	for what, name := range map[string]string{"name": o.Name, "node": o.Node} {
		if !nameRule.MatchString(name) {
			errs = append(errs, fmt.Errorf("%s must be lower-case letters, digits and dashes, at most 32, not %q", what, name))
		}
	}
	switch {
	case o.KubernetesBin != "":
		if o.Kubernetes != "" {
			errs = append(errs, errors.New("a version of Kubernetes and a folder with ready programs exclude each other"))
		}
	case o.Kubernetes == "":
		o.Kubernetes = KubernetesVersions[0]
	case !slices.Contains(KubernetesVersions, o.Kubernetes):
		errs = append(errs, fmt.Errorf("kubernetes must be %s, not %q", strings.Join(KubernetesVersions, " or "), o.Kubernetes))
	}
	if o.Containerd == "" {
		o.Containerd = ContainerdVersions[0]
	}
	if !slices.Contains(ContainerdVersions, o.Containerd) {
		errs = append(errs, fmt.Errorf("containerd must be %s, not %q", strings.Join(ContainerdVersions, " or "), o.Containerd))
	}
	if o.Grace < 0 || o.Grace%time.Second != 0 {
		errs = append(errs, fmt.Errorf("grace must be whole seconds, not %s", o.Grace))
	}
	if o.MaxPods == 0 {
		o.MaxPods = 110
	}
	if o.MaxPods < 0 {
		errs = append(errs, fmt.Errorf("pods must be above 0, not %d", o.MaxPods))
	}
	if o.Cache == "" {
		dir, err := defaultCache()
		if err != nil {
			errs = append(errs, err)
		}
		o.Cache = dir
	}
	for _, path := range []*string{&o.Cache, &o.KubernetesBin, &o.LockExec, &o.PodCheckpointer} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			errs = append(errs, err)
		}
		*path = abs
	}
	if o.Say == nil {
		o.Say = func(string) {}
	}
	return o, errors.Join(errs...)
}
