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

	"github.com/pod-checkpointer/pod-checkpointer/test/lab/node"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// temporaryAPIServer runs on the node itself until the self-hosted one can take over.
const temporaryAPIServer Component = "kube-apiserver-temporary"

// upTimeout is for all of bringing up, once everything is built. A quiet
// machine of two cores takes 10 to 15 s.
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
	if l.options.StaticAPIServer {
		start = l.startStatic
	}
	if err := start(ctx, certs); err != nil {
		return err
	}
	if l.options.NoDaemon {
		return nil
	}
	return l.timed("pod-checkpointer has saved the API server", func() error { return l.startDaemon(ctx) })
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
		"kubernetes/kubelet.yaml":   kubeletConfig(l.cgroups().root),
	} {
		path = filepath.Join(etc, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, user := range []string{"admin", "kubelet", "kube-controller-manager", "kube-scheduler", "pod-checkpointer"} {
		config, err := certs.kubeconfig(user)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(etc, "kubernetes", user+".conf"), config, 0o600); err != nil {
			return err
		}
	}
	// The API server's own files reach it by a Secret, so that a copy of its pod
	// is worth nothing without a copy of that.
	files := []string{"ca.crt", "kubelet-server.crt", "kubelet-server.key", "sa.key"}
	if l.options.StaticAPIServer {
		files = append(files, apiServerFiles...)
	}
	return errors.Join(
		certs.write(filepath.Join(etc, "kubernetes/pki"), files...),
		copyFile(l.made.LockExec, filepath.Join(lockExec, "lock-exec"), 0o755),
	)
}

// startStatic starts a cluster whose API server is a static pod.
func (l *Lab) startStatic(ctx context.Context, certs *pki) error {
	set, err := l.daemonSet()
	if err != nil {
		return err
	}
	if err := l.PlaceManifest("kube-apiserver.yaml", plainStaticPod(set)); err != nil {
		return err
	}
	if err := l.StartAll(ctx); err != nil {
		return err
	}
	if err := l.timed("static API server is ready", func() error { return l.AwaitReady(ctx) }); err != nil {
		return err
	}
	return l.apply(ctx, certs)
}

// startSelfHosted starts a cluster whose API server is a DaemonSet, by way of
// one that holds the same lock until the DaemonSet's pod waits for it.
func (l *Lab) startSelfHosted(ctx context.Context, certs *pki) error {
	set, err := l.daemonSet()
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.startRuntime(groupCtx) })
	group.Go(func() error { // both wait for an API server
		return errors.Join(l.Start(groupCtx, ControllerManager), l.Start(groupCtx, Scheduler))
	})
	group.Go(func() error {
		return l.timed("temporary API server is ready", func() error {
			return l.startTemporary(groupCtx, temporary(set, "/run/lab/secrets"), certs)
		})
	})
	if err := group.Wait(); err != nil {
		return err
	}
	// Not before there is an API server, from which its reflectors would have backed off.
	if err := l.Start(ctx, Kubelet); err != nil {
		return err
	}
	if err := l.timed("objects made, node registered", func() error { return l.apply(ctx, certs) }); err != nil {
		return err
	}
	kind := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}
	if err := l.create(ctx, kind, systemSpace, set); err != nil {
		return err
	}
	if err := l.timed("API server's pod waits", func() error { return l.awaitParent(ctx) }); err != nil {
		return err
	}
	return l.timed("self-hosted API server is ready", func() error {
		if err := l.Kill(temporaryAPIServer); err != nil {
			return err
		}
		return l.AwaitReady(ctx)
	})
}

// startRuntime starts containerd and gives it the daemon's image.
func (l *Lab) startRuntime(ctx context.Context) error {
	if err := l.Start(ctx, Containerd); err != nil {
		return err
	}
	if l.options.NoDaemon {
		return nil
	}
	img, err := l.made.daemonImage()
	if err != nil {
		return err
	}
	return l.importImage(ctx, img)
}

func (l *Lab) startTemporary(ctx context.Context, argv []string, certs *pki) error {
	if err := l.Start(ctx, Etcd); err != nil {
		return err
	}
	secrets, err := l.NodePath("/run/lab/secrets") // gone with the first power cut
	if err != nil {
		return err
	}
	locks, err := l.NodePath("/run/lock/pod-checkpointer")
	if err != nil {
		return err
	}
	if err := errors.Join(certs.write(secrets, apiServerFiles...), os.MkdirAll(locks, 0o755)); err != nil {
		return err
	}
	if err := l.startUnit(node.Unit{Name: string(temporaryAPIServer), Argv: argv}); err != nil {
		return err
	}
	return l.AwaitReady(ctx)
}

// awaitParent waits until the API server's pod runs, which means that it waits
// for the lock, or is about to.
func (l *Lab) awaitParent(ctx context.Context) error {
	url := apiURL + "/api/v1/namespaces/" + systemSpace + "/pods?labelSelector=k8s-app%3D" + apiServer
	client, err := l.Admin()
	if err != nil {
		return err
	}
	return poll(ctx, 100*time.Millisecond, func() error {
		var pods corev1.PodList
		if err := call(ctx, client, http.MethodGet, url, nil, &pods); err != nil {
			return err
		}
		for _, pod := range pods.Items {
			for _, status := range pod.Status.ContainerStatuses {
				if status.State.Running != nil {
					return nil
				}
			}
		}
		return fmt.Errorf("none of its %d pods runs", len(pods.Items))
	})
}

// startDaemon places pod-checkpointer's static pod and waits until it is of
// use: before it has saved the API server, a power cut is for good.
func (l *Lab) startDaemon(ctx context.Context) error {
	pod, err := l.daemonPod()
	if err != nil {
		return err
	}
	if err := l.PlaceManifest("pod-checkpointer.yaml", pod); err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: l.Dial, DisableKeepAlives: true}}
	saves := !l.options.StaticAPIServer && !slices.Contains(l.options.DaemonFlags, "--dry-run")
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
		for _, w := range status.Workloads {
			if w.Workload == systemSpace+"/"+apiServer && w.Generation > 0 {
				return nil
			}
		}
		return fmt.Errorf("it has not saved the API server: %+v", status.Workloads)
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
