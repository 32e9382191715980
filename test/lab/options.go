package lab

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
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
	// KubernetesBin is a folder with etcd, kube-apiserver,
	// kube-controller-manager, kube-scheduler, kubelet and kubectl, static ones.
	// Empty: they are built from the module test/lab/kubernetes.
	KubernetesBin string
	// LockExec and PodCheckpointer are ready, static programs. Empty: they are
	// built from the checkout.
	LockExec, PodCheckpointer string
	// StaticAPIServer runs the API server as a plain static pod without
	// lock-exec instead of a DaemonSet: what no self-hosted one can beat.
	StaticAPIServer bool
	// NoDaemon leaves pod-checkpointer's static pod out.
	NoDaemon bool
	// DaemonFlags are added to pod-checkpointer's command.
	DaemonFlags []string
	// Grace replaces the API server's terminationGracePeriodSeconds. Whole
	// seconds; 0: as in the manifest.
	Grace time.Duration
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
	if o.Grace < 0 || o.Grace%time.Second != 0 {
		errs = append(errs, fmt.Errorf("grace must be whole seconds, not %s", o.Grace))
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
