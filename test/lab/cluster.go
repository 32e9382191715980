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
	return l.timed("pod-checkpointer has saved the control plane", func() error { return l.startDaemon(ctx) })
}

// configure writes everything that the node's components read.
func (l *Lab) configure(certs *pki) error {
	etc := filepath.Join(l.diskDir(), "etc")
	lockExec := filepath.Join(l.diskDir(), "opt/pod-checkpointer/bin")
	if err := os.MkdirAll(lockExec, 0o755); err != nil {
		return err
	}
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
	for _, name := range []string{"admin.conf", "kubelet.conf", "pod-checkpointer.conf"} {
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
		copyFile(l.made.LockExec, filepath.Join(lockExec, "lock-exec"), 0o755),
	}
	if l.options.StaticControlPlane {
		for _, p := range controlPlane {
			errs = append(errs, certs.write(filepath.Join(l.diskDir(), staticSecrets, p.name), p.files))
		}
	}
	return errors.Join(errs...)
}

// startDaemon places pod-checkpointer's static pod and waits until it is of
// use: before it has saved the control plane, a power cut is for good.
func (l *Lab) startDaemon(ctx context.Context) error {
	pod, err := l.daemonPod()
	if err != nil {
		return err
	}
	if err := l.PlaceManifest("pod-checkpointer.yaml", pod); err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: l.Dial, DisableKeepAlives: true}}
	saves := !l.options.StaticControlPlane && !slices.Contains(l.options.DaemonFlags, "--dry-run")
	return poll(ctx, 100*time.Millisecond, func() error {
		var status struct {
			Workloads []struct {
				Workload   string
				Generation int64
				Why        string
			}
		}
		if err := call(ctx, client, http.MethodGet, "http://127.0.0.1:10299/status", nil, &status); err != nil || !saves {
			return err
		}
		saved := map[string]bool{}
		for _, w := range status.Workloads {
			saved[w.Workload] = w.Generation > 0
		}
		for _, p := range controlPlane {
			if !saved[systemSpace+"/"+p.name] {
				return fmt.Errorf("it has not saved %s: %+v", p.name, status.Workloads)
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
