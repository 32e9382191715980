package lab

import (
	"net"
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
	l.made = artefacts{Checkout: "../..", Kubernetes: t.TempDir(), Version: "v1.2.3", PodCheckpointer: filepath.Join(t.TempDir(), "p"), LockExec: filepath.Join(t.TempDir(), "l")}
	require.NoError(t, os.WriteFile(filepath.Join(l.made.Kubernetes, "kubernetes"), nil, 0o700))
	require.NoError(t, os.WriteFile(l.made.PodCheckpointer, nil, 0o700))
	require.NoError(t, os.WriteFile(l.made.LockExec, []byte("another"), 0o700))
	for _, part := range kubernetesParts {
		require.NoError(t, os.Symlink("kubernetes", filepath.Join(l.made.Kubernetes, part)))
	}
	return l
}

// apiServerPart is the API server.
var apiServerPart = controlPlane[0]

func TestDaemonSetIsTheManifestWithTheLabsImage(t *testing.T) {
	for _, p := range controlPlane {
		set, err := sample(t, Options{}).daemonSet(p)
		require.NoError(t, err)
		require.Equal(t, p.name, set.Name)
		spec := set.Spec.Template.Spec
		require.Equal(t, "lab.local/kubernetes:v1.2.3", spec.Containers[0].Image)
		require.Equal(t, int64(1), *spec.TerminationGracePeriodSeconds, "the manifest's own")
		require.Empty(t, spec.Containers[0].Ports, "two on the host's network would refuse each other")
		require.False(t, *spec.AutomountServiceAccountToken)
		require.Equal(t, "true", set.Spec.Template.Annotations["pod-checkpointer.io/checkpoint"])
		require.Equal(t, p.name, set.Spec.Template.Annotations["pod-checkpointer.io/lock"])
		require.Equal(t, []string{"--lock", p.lock(), "--", p.name}, spec.Containers[0].Command[1:5])
		require.Subset(t, spec.Containers[0].Command, p.flags)
	}
	set, err := sample(t, Options{Grace: 5 * time.Second}).daemonSet(apiServerPart)
	require.NoError(t, err)
	require.Equal(t, int64(5), *set.Spec.Template.Spec.TerminationGracePeriodSeconds)
}

func TestSecretHoldsEveryFileThatItsProgramNames(t *testing.T) {
	certs, err := newPKI("master", net.ParseIP(nodeIP))
	require.NoError(t, err)
	for _, p := range controlPlane {
		set, err := sample(t, Options{}).daemonSet(p)
		require.NoError(t, err)
		require.Equal(t, p.name, set.Spec.Template.Spec.Volumes[0].Secret.SecretName)
		for _, word := range set.Spec.Template.Spec.Containers[0].Command {
			if _, name, ok := strings.Cut(word, secretsMount+"/"); ok {
				require.Contains(t, p.files, name)
			}
		}
		for _, from := range p.files {
			require.NotEmpty(t, certs.files[from], from)
		}
	}
}

func TestTemporaryProgramTakesTheSameLock(t *testing.T) {
	for _, p := range controlPlane {
		set, err := sample(t, Options{}).daemonSet(p)
		require.NoError(t, err)
		argv := temporary(set, "/run/elsewhere/lock-exec", "/run/elsewhere")
		require.Equal(t, []string{"/run/elsewhere/lock-exec", "--lock", p.lock(), "--", p.name}, argv[:5])
		line := strings.Join(argv, " ")
		require.NotContains(t, line, "$(", "no kubelet replaces it")
		require.NotContains(t, line, secretsMount)
		require.Contains(t, line, "=/run/elsewhere/")
	}
}

func TestPlainStaticPodNeedsNothingOfOurs(t *testing.T) {
	for _, p := range controlPlane {
		set, err := sample(t, Options{}).daemonSet(p)
		require.NoError(t, err)
		pod := plainStaticPod(set)
		container := pod.Spec.Containers[0]
		require.Equal(t, p.name, container.Command[0])
		require.Nil(t, container.ReadinessProbe)
		require.Nil(t, container.LivenessProbe)
		requireStatic(t, pod)
		require.Equal(t, staticSecrets+"/"+p.name, pod.Spec.Volumes[0].HostPath.Path)
		for _, v := range pod.Spec.Volumes {
			require.NotContains(t, v.HostPath.Path, "pod-checkpointer")
		}
		require.Len(t, container.VolumeMounts, len(pod.Spec.Volumes))
		require.NotNil(t, set.Spec.Template.Spec.Containers[0].ReadinessProbe, "the DaemonSet is left as it was")
	}
}

func TestDaemonIsTheManifestWithMoreFlags(t *testing.T) {
	l := sample(t, Options{DaemonFlags: []string{"--poll=2s"}})
	set, err := l.daemon()
	require.NoError(t, err)
	img, err := l.made.daemonImage()
	require.NoError(t, err)
	spec := set.Spec.Template.Spec
	require.Equal(t, []string{"pod-checkpointer", "install"}, spec.InitContainers[0].Command)
	require.Equal(t, img.Ref, spec.InitContainers[0].Image)
	container := spec.Containers[0]
	require.Equal(t, []string{"pod-checkpointer", "run"}, container.Command[:2])
	require.Equal(t, "--poll=2s", container.Command[len(container.Command)-1])
	require.Equal(t, img.Ref, container.Image)
	require.Empty(t, container.Ports, "two on the host's network would refuse each other")
	for _, c := range []corev1.Container{spec.InitContainers[0], container} {
		require.Contains(t, c.VolumeMounts, corev1.VolumeMount{Name: "opt", MountPath: filepath.Dir(filepath.Dir(lockExec)), ReadOnly: c.Name != "install"},
			"a mount of the directory itself would go on to show one that was replaced")
	}
}

func TestDaemonsImageIsNamedForBothItsPrograms(t *testing.T) {
	l := sample(t, Options{})
	before, err := l.made.daemonImage()
	require.NoError(t, err)
	require.Len(t, before.Files, 2)
	for _, file := range []string{l.made.PodCheckpointer, l.made.LockExec} {
		require.NoError(t, os.WriteFile(file, []byte("changed"), 0o700))
		after, err := l.made.daemonImage()
		require.NoError(t, err)
		require.NotEqual(t, before.Ref, after.Ref)
		before = after
	}
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
		"/api/v1/namespaces/kube-system/serviceaccounts",
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
	require.NoError(t, l.PlaceManifest("p.yaml", &corev1.Pod{}))
	dir, err := l.NodePath("/etc/kubernetes/manifests")
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, "p.yaml", entries[0].Name())
}

// TestKustomizationsNameEveryFile: what the lab reads file by file is what a user applies.
func TestKustomizationsNameEveryFile(t *testing.T) {
	l := sample(t, Options{})
	for dir, want := range map[string][]string{"base": nil, "control-plane": {"../base"}} {
		var found struct {
			APIVersion, Kind string
			Resources        []string
		}
		require.NoError(t, l.manifest(dir+"/kustomization.yaml", &found))
		files, err := filepath.Glob(filepath.Join(l.made.Checkout, "manifests", dir, "*.yaml"))
		require.NoError(t, err)
		for _, file := range files {
			if name := filepath.Base(file); name != "kustomization.yaml" {
				want = append(want, name)
			}
		}
		require.ElementsMatch(t, want, found.Resources)
	}
}
