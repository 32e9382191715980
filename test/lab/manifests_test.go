package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// sample is a lab over this checkout's manifests and programs that are none.
func sample(t *testing.T, o Options) *Lab {
	t.Helper()
	o.Cache = t.TempDir()
	o, err := o.withDefaults()
	require.NoError(t, err)
	l := newLab(o)
	l.made = artefacts{Checkout: "../..", Kubernetes: t.TempDir(), Version: "v1.2.3", PodCheckpointer: filepath.Join(t.TempDir(), "p")}
	require.NoError(t, os.WriteFile(filepath.Join(l.made.Kubernetes, "kubernetes"), nil, 0o700))
	require.NoError(t, os.WriteFile(l.made.PodCheckpointer, nil, 0o700))
	for _, part := range kubernetesParts {
		require.NoError(t, os.Symlink("kubernetes", filepath.Join(l.made.Kubernetes, part)))
	}
	return l
}

func TestDaemonSetIsTheManifestWithTheLabsImage(t *testing.T) {
	set, err := sample(t, Options{Grace: 5 * time.Second}).daemonSet()
	require.NoError(t, err)
	spec := set.Spec.Template.Spec
	require.Equal(t, "lab.local/kube-apiserver:v1.2.3", spec.Containers[0].Image)
	require.Equal(t, int64(5), *spec.TerminationGracePeriodSeconds)
	require.Empty(t, spec.Containers[0].Ports, "two on the host's network would refuse each other")
	require.False(t, *spec.AutomountServiceAccountToken)

	set, err = sample(t, Options{}).daemonSet()
	require.NoError(t, err)
	require.Equal(t, int64(1), *set.Spec.Template.Spec.TerminationGracePeriodSeconds, "the manifest's own")
}

func TestSecretHoldsEveryFileThatTheAPIServerNames(t *testing.T) {
	set, err := sample(t, Options{}).daemonSet()
	require.NoError(t, err)
	for _, word := range set.Spec.Template.Spec.Containers[0].Command {
		if _, name, ok := strings.Cut(word, secretsMount+"/"); ok {
			require.Contains(t, apiServerFiles, name)
		}
	}
}

func TestTemporaryAPIServerTakesTheSameLock(t *testing.T) {
	set, err := sample(t, Options{}).daemonSet()
	require.NoError(t, err)
	argv := temporary(set, "/run/elsewhere")
	require.Equal(t, set.Spec.Template.Spec.Containers[0].Command[:5], argv[:5], "lock-exec, its lock and the program")
	line := strings.Join(argv, " ")
	require.NotContains(t, line, "$(", "no kubelet replaces it")
	require.NotContains(t, line, secretsMount)
	require.Contains(t, line, "--advertise-address="+nodeIP)
	require.Contains(t, line, "--tls-cert-file=/run/elsewhere/apiserver.crt")
}

func TestPlainStaticPodNeedsNothingOfOurs(t *testing.T) {
	set, err := sample(t, Options{}).daemonSet()
	require.NoError(t, err)
	pod := plainStaticPod(set)
	container := pod.Spec.Containers[0]
	require.Equal(t, apiServer, container.Command[0])
	require.Nil(t, container.ReadinessProbe)
	require.Nil(t, container.LivenessProbe)
	requireStatic(t, pod)
	require.Len(t, pod.Spec.Volumes, 1)
	require.NotNil(t, set.Spec.Template.Spec.Containers[0].ReadinessProbe, "the DaemonSet is left as it was")
}

func TestDaemonPodIsTheManifestWithMoreFlags(t *testing.T) {
	l := sample(t, Options{DaemonFlags: []string{"--poll=2s"}})
	pod, err := l.daemonPod()
	require.NoError(t, err)
	requireStatic(t, pod)
	container := pod.Spec.Containers[0]
	require.Equal(t, []string{"pod-checkpointer", "run"}, container.Command[:2])
	require.Equal(t, "--poll=2s", container.Command[len(container.Command)-1])
	img, err := l.made.daemonImage()
	require.NoError(t, err)
	require.Equal(t, img.Ref, container.Image)
}

// requireStatic checks what the kubelet asks of a pod from a file
// (k8s.io/kubernetes pkg/kubelet/config/common.go, v1.37.2), and that it would
// be admitted with no Node object and beside another on the host's network.
func requireStatic(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	require.Equal(t, "Pod", pod.Kind)
	require.Empty(t, pod.Spec.ServiceAccountName)
	require.Empty(t, pod.Spec.NodeSelector)
	require.NotNil(t, pod.Spec.Priority)
	for _, v := range pod.Spec.Volumes {
		require.NotNil(t, v.HostPath, "volume %s", v.Name)
	}
	for _, c := range pod.Spec.Containers {
		require.Empty(t, c.Ports)
		require.Empty(t, c.EnvFrom)
		for _, e := range c.Env {
			require.NotNil(t, e.ValueFrom.FieldRef, "env %s", e.Name)
		}
	}
}

func TestObjectsGoWhereTheAPIServerKeepsThem(t *testing.T) {
	objects, err := sample(t, Options{}).objects("base/rbac.yaml")
	require.NoError(t, err)
	var paths []string
	for _, o := range objects {
		paths = append(paths, collection(o.GroupVersionKind(), o.GetNamespace()))
	}
	require.Equal(t, []string{
		"/apis/rbac.authorization.k8s.io/v1/clusterroles",
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings",
	}, paths)
	require.Equal(t, "/api/v1/namespaces/kube-system/secrets", collection(schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, systemSpace))
}

func TestPlaceManifestLeavesNoTemporaryFile(t *testing.T) {
	l := sample(t, Options{})
	require.NoError(t, l.makeDisk())
	pod, err := l.daemonPod()
	require.NoError(t, err)
	require.NoError(t, l.PlaceManifest("p.yaml", pod))
	dir, err := l.NodePath("/etc/kubernetes/manifests")
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, "p.yaml", entries[0].Name())
}
