package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// upTimeout is for all of bringing up, once everything is built. A quiet
// machine of two cores takes 15 to 20 s.
const upTimeout = 3 * time.Minute

// bringUp goes from nothing to a cluster.
func (l *Lab) bringUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, upTimeout, fmt.Errorf("not up after %s", upTimeout))
	defer cancel()
	if err := l.network().make(ctx); err != nil {
		return err
	}
	if err := l.makeDisk(); err != nil {
		return err
	}
	certs, err := newPKI(l.options.Node, net.ParseIP(nodeIP))
	if err != nil {
		return err
	}
	if err := l.configure(certs); err != nil {
		return fmt.Errorf("write the node's configuration: %w", err)
	}
	if err := l.timed("images provided", func() error { return l.provision(ctx) }); err != nil {
		return err
	}
	if err := l.timed("power on", func() error { return l.powerOn(ctx) }); err != nil {
		return err
	}
	start := l.startSelfHosted
	if l.options.StaticControlPlane {
		start = l.startStatic
	}
	if err := start(ctx, certs); err != nil {
		return err
	}
	if l.options.NoDaemon {
		return nil
	}
	return l.timed("pod-checkpointer protects the control plane", func() error { return l.awaitProtected(ctx) })
}

// configure writes everything that the node's components read.
func (l *Lab) configure(certs *pki) error {
	etc := filepath.Join(l.diskDir(), "etc")
	for path, text := range map[string]string{
		"cni/net.d/10-lab.conflist": cniConfig(),
		"containerd/config.toml":    containerdConfig(l.options.Containerd),
		"kubernetes/kubelet.yaml":   kubeletConfig(l.cgroups().root, l.options.MaxPods),
	} {
		path = filepath.Join(etc, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	users := map[string]string{}
	for _, name := range []string{"admin.conf", "kubelet.conf"} {
		users[name] = name
	}
	// The control plane's own files reach it by Secrets, so that a copy of a pod
	// is worth nothing without a copy of its.
	pki := map[string]string{}
	for _, name := range []string{"ca.crt", "kubelet-server.crt", "kubelet-server.key"} {
		pki[name] = name
	}
	errs := []error{
		certs.write(filepath.Join(etc, "kubernetes"), users), certs.write(filepath.Join(etc, "kubernetes/pki"), pki),
		os.WriteFile(filepath.Join(l.logDir(), auditPolicy), []byte(auditRules), 0o644),
	}
	if l.options.StaticControlPlane {
		for _, p := range controlPlane {
			errs = append(errs, certs.write(filepath.Join(l.diskDir(), staticSecrets, p.name), p.files))
		}
	}
	return errors.Join(errs...)
}

// awaitProtected waits until the daemon is of use: before it has saved the control
// plane and has left a copy of itself, a power cut is for good.
func (l *Lab) awaitProtected(ctx context.Context) error {
	client := &http.Client{Transport: &http.Transport{DialContext: l.Dial, DisableKeepAlives: true}}
	idle := l.options.StaticControlPlane || slices.Contains(l.options.DaemonFlags, "--dry-run")
	return poll(ctx, 100*time.Millisecond, func() error {
		var status struct {
			Workloads []struct{ Workload, State, Why string }
			Problems  []string
		}
		if err := call(ctx, client, http.MethodGet, "http://127.0.0.1:10299/status", nil, &status); err != nil || idle {
			return err
		}
		protected := map[string]bool{}
		for _, w := range status.Workloads {
			protected[w.Workload] = w.State == "Protected"
		}
		for _, p := range controlPlane {
			if !protected[systemSpace+"/"+p.name] {
				return fmt.Errorf("%s is not protected: %+v", p.name, status)
			}
		}
		for _, path := range []string{"/etc/kubernetes/manifests/pod-checkpointer.json", "/var/lib/pod-checkpointer/kubeconfig"} {
			if _, err := os.Stat(filepath.Join(l.diskDir(), path)); err != nil {
				return fmt.Errorf("%w: %+v", err, status)
			}
		}
		return nil
	})
}

// Kubectl runs kubectl on the node as the administrator and returns what it printed.
func (l *Lab) Kubectl(ctx context.Context, args ...string) (string, error) {
	return l.Exec(ctx, KubectlCommand(args...)...)
}

// KubectlCommand is the command line, inside of the node, of the administrator's kubectl.
func KubectlCommand(args ...string) []string {
	return append([]string{kubernetesDir + "/kubectl", "--kubeconfig=/etc/kubernetes/admin.conf"}, args...)
}
