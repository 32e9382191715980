package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// The lab runs the files of manifests/ as they are, except for what is said here:
//
//   - kube-apiserver.yaml: the image is the lab's own; the grace is Options.Grace
//     where that is set.
//   - pod-checkpointer.yaml: the image is the lab's own; Options.DaemonFlags are
//     added to the command.
//   - rbac.yaml: nothing.
//
// Of kube-apiserver.yaml it also derives the API server that runs while there
// is none yet, and the one that is a plain static pod.

const (
	apiServer     = "kube-apiserver"
	systemSpace   = "kube-system"
	secretsMount  = "/etc/kubernetes/secrets"
	staticSecrets = "/etc/kubernetes/pki" // of the plain static pod, on the node's disk
)

// apiServerFiles are the contents of the Secret that kube-apiserver.yaml mounts.
var apiServerFiles = []string{
	"apiserver-kubelet-client.crt", "apiserver-kubelet-client.key", "apiserver.crt", "apiserver.key",
	"ca.crt", "sa.key", "sa.pub",
}

func (l *Lab) manifest(name string, into any) error {
	data, err := os.ReadFile(filepath.Join(l.made.Checkout, "manifests", name))
	if err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		return fmt.Errorf("read manifests/%s: %w", name, err)
	}
	return nil
}

// daemonSet is the self-hosted API server.
func (l *Lab) daemonSet() (*appsv1.DaemonSet, error) {
	set := &appsv1.DaemonSet{}
	if err := l.manifest("control-plane/kube-apiserver.yaml", set); err != nil {
		return nil, err
	}
	img, err := kubernetesImage(l.made.Kubernetes, l.made.Version)
	if err != nil {
		return nil, err
	}
	spec := &set.Spec.Template.Spec
	spec.Containers[0].Image = img.Ref
	if seconds := int64(l.options.Grace.Seconds()); seconds != 0 {
		spec.TerminationGracePeriodSeconds = &seconds
	}
	return set, nil
}

// temporary is the command of set's API server for the node itself, with its
// files in another folder: lock-exec's path and lock stay, so that the pod
// waits for it.
func temporary(set *appsv1.DaemonSet, secrets string) []string {
	replace := strings.NewReplacer(secretsMount, secrets, "$(HOST_IP)", nodeIP)
	var argv []string
	for _, word := range set.Spec.Template.Spec.Containers[0].Command {
		argv = append(argv, replace.Replace(word))
	}
	return argv
}

// plainStaticPod is the same API server with nothing of ours: a static pod
// that starts at once, its files on the node's disk.
func plainStaticPod(set *appsv1.DaemonSet) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: apiServer, Namespace: systemSpace, Labels: map[string]string{"k8s-app": apiServer}},
		Spec:       *set.Spec.Template.Spec.DeepCopy(),
	}
	spec, container := &pod.Spec, &pod.Spec.Containers[0]
	spec.NodeSelector, spec.Tolerations = nil, nil
	priority := int32(2000001000) // of system-node-critical; both, or the kubelet warns
	spec.Priority = &priority
	container.Command = container.Command[slices.Index(container.Command, "--")+1:]
	container.ReadinessProbe, container.LivenessProbe = nil, nil
	directory := corev1.HostPathDirectory
	spec.Volumes = []corev1.Volume{{Name: "secrets", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: staticSecrets, Type: &directory},
	}}}
	container.VolumeMounts = []corev1.VolumeMount{{Name: "secrets", MountPath: secretsMount, ReadOnly: true}}
	return pod
}

// daemonPod is pod-checkpointer's static pod.
func (l *Lab) daemonPod() (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := l.manifest("pod-checkpointer.yaml", pod); err != nil {
		return nil, err
	}
	img, err := l.made.daemonImage()
	if err != nil {
		return nil, err
	}
	container := &pod.Spec.Containers[0]
	container.Image = img.Ref
	container.Command = append(container.Command, l.options.DaemonFlags...)
	return pod, nil
}

// objects are those of a file with several.
func (l *Lab) objects(name string) ([]*unstructured.Unstructured, error) {
	data, err := os.ReadFile(filepath.Join(l.made.Checkout, "manifests", name))
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read manifests/%s: %w", name, err)
		}
		out = append(out, object)
	}
}

// PlaceManifest puts a static pod into the kubelet's directory at once, as a
// reader sees it.
func (l *Lab) PlaceManifest(file string, pod *corev1.Pod) error {
	data, err := yaml.Marshal(pod)
	if err != nil {
		return err
	}
	dir := filepath.Join(l.diskDir(), "/etc/kubernetes/manifests")
	temp := filepath.Join(dir, "."+file) // the kubelet ignores a leading dot
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(dir, file))
}
