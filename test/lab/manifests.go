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
//   - base: the image is the lab's own; Options.DaemonFlags are added to the
//     daemon's command.
//   - control-plane: the images are the lab's own; the API server's grace is
//     Options.Grace where that is set, and it keeps an audit log; its clients get
//     the flags below.
//
// Of control-plane it also derives the programs that run while there are no pods
// yet, and the plain static pods.

const (
	apiServer     = "kube-apiserver"
	systemSpace   = "kube-system"
	secretsMount  = "/etc/kubernetes/secrets"
	staticSecrets = "/etc/kubernetes/pki" // of the plain static pods, on the node's disk
)

// part is a part of the control plane that runs in pods. Its name is that of its
// DaemonSet, of its file, of its Secret, of its lock and of its program.
type part struct {
	name   string
	files  map[string]string // of its Secret: the name there, and that in the cluster's PKI
	flags  []string          // that the lab adds
	health string            // answers 200 while it serves
}

// election lets an heir lead after 10 s instead of 15 s where its predecessor has
// not given up its lease, which a controller manager never does. A leader still
// outlives an outage of 8 s.
var election = []string{
	"--leader-elect-lease-duration=10s", "--leader-elect-renew-deadline=8s", "--leader-elect-retry-period=1s",
}

var controlPlane = []part{
	{
		name: apiServer, health: apiURL + "/readyz", flags: auditFlags,
		files: map[string]string{
			"apiserver-kubelet-client.crt": "apiserver-kubelet-client.crt",
			"apiserver-kubelet-client.key": "apiserver-kubelet-client.key",
			"apiserver.crt":                "apiserver.crt",
			"apiserver.key":                "apiserver.key",
			"ca.crt":                       "ca.crt",
			"sa.key":                       "sa.key",
			"sa.pub":                       "sa.pub",
		},
	},
	{
		name: "kube-controller-manager", health: "https://127.0.0.1:10257/healthz",
		files: map[string]string{"ca.crt": "ca.crt", "kubeconfig": "kube-controller-manager.conf", "sa.key": "sa.key"},
		flags: append(slices.Clone(election), "--kube-api-burst=400", "--kube-api-qps=200"), // or its start alone takes 5 s
	},
	{
		name: "kube-scheduler", health: "https://127.0.0.1:10259/readyz",
		files: map[string]string{"kubeconfig": "kube-scheduler.conf"},
		flags: election,
	},
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

// daemonSet is the self-hosted one.
func (l *Lab) daemonSet(p part) (*appsv1.DaemonSet, error) {
	set := &appsv1.DaemonSet{}
	if err := l.manifest("control-plane/"+p.name+".yaml", set); err != nil {
		return nil, err
	}
	img, err := kubernetesImage(l.made.Kubernetes, l.made.Version)
	if err != nil {
		return nil, err
	}
	spec := &set.Spec.Template.Spec
	container := &spec.Containers[0]
	container.Image = img.Ref
	container.Command = append(container.Command, p.flags...)
	if p.name != apiServer {
		return set, nil
	}
	if seconds := int64(l.options.Grace.Seconds()); seconds != 0 {
		spec.TerminationGracePeriodSeconds = &seconds
	}
	directory := corev1.HostPathDirectory
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "logs", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: nodeLogs, Type: &directory},
	}})
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "logs", MountPath: nodeLogs})
	return set, nil
}

// temporary is the command of set for the node itself, with another lock-exec
// and its files in another folder. The lock is the same, so that the pod waits
// for it.
func temporary(set *appsv1.DaemonSet, lockExec, secrets string) []string {
	replace := strings.NewReplacer(secretsMount, secrets, "$(HOST_IP)", nodeIP)
	argv := []string{lockExec}
	for _, word := range set.Spec.Template.Spec.Containers[0].Command[1:] {
		argv = append(argv, replace.Replace(word))
	}
	return argv
}

// plainStaticPod is the same program with nothing of ours: a static pod that
// starts at once, its files on the node's disk.
func plainStaticPod(set *appsv1.DaemonSet) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: set.Name, Namespace: systemSpace, Labels: map[string]string{"k8s-app": set.Name}},
		Spec:       *set.Spec.Template.Spec.DeepCopy(),
	}
	spec, container := &pod.Spec, &pod.Spec.Containers[0]
	spec.NodeSelector, spec.Tolerations = nil, nil
	priority := int32(2000001000) // of system-node-critical; both, or the kubelet warns
	spec.Priority = &priority
	container.Command = container.Command[slices.Index(container.Command, "--")+1:]
	container.ReadinessProbe, container.LivenessProbe = nil, nil
	ours := func(volume string) bool { return volume == "bin" || volume == "lock" }
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return ours(v.Name) })
	container.VolumeMounts = slices.DeleteFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return ours(m.Name) })
	directory := corev1.HostPathDirectory
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.Secret != nil {
			v.VolumeSource = corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: staticSecrets + "/" + set.Name, Type: &directory},
			}
		}
	}
	return pod
}

// daemon is pod-checkpointer's DaemonSet.
func (l *Lab) daemon() (*appsv1.DaemonSet, error) {
	set := &appsv1.DaemonSet{}
	if err := l.manifest("base/daemonset.yaml", set); err != nil {
		return nil, err
	}
	img, err := l.made.daemonImage()
	if err != nil {
		return nil, err
	}
	spec := &set.Spec.Template.Spec
	spec.InitContainers[0].Image = img.Ref
	container := &spec.Containers[0]
	container.Image = img.Ref
	container.Command = append(container.Command, l.options.DaemonFlags...)
	return set, nil
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
