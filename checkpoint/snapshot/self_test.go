package snapshot

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func daemonPod(t *testing.T) *v1.Pod {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/self/daemonset.txtar")
	require.NoError(t, err)
	var pod v1.Pod
	require.NoError(t, yaml.UnmarshalStrict(archive.Files[0].Data, &pod))
	return &pod
}

// Each file of testdata/self holds pod.yaml, and what must come of it: static.yaml
// or refused.
func TestSelfGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/self/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			require.NoError(t, err)
			in, want := archive.Files[:1], archive.Files[1:]
			var pod v1.Pod
			require.NoError(t, yaml.UnmarshalStrict(in[0].Data, &pod))
			var got []txtar.File
			if manifest, err := Self(&pod); err == nil {
				static, err := yaml.JSONToYAML(manifest)
				require.NoError(t, err)
				got = []txtar.File{{Name: "static.yaml", Data: static}}
			} else {
				got = []txtar.File{{Name: "refused", Data: []byte(unprotectable(t, err).Error() + "\n")}}
			}
			if *update {
				archive.Files = append(in, got...)
				require.NoError(t, os.WriteFile(file, txtar.Format(archive), 0o600))
				return
			}
			require.Equal(t, text(want), text(got))
		})
	}
}

func selfOf(t *testing.T, pod *v1.Pod) (string, *v1.Pod) {
	t.Helper()
	before := pod.DeepCopy()
	data, err := Self(pod)
	require.NoError(t, err)
	require.Equal(t, before, pod, "Self changed the pod")
	var static v1.Pod
	require.NoError(t, json.Unmarshal(data, &static))
	return string(data), &static
}

// The copy is written again only for another template: not for the next pod of the
// same one, nor for what happens to a pod while it runs.
func TestSelfIsTheSameForEveryPodOfATemplate(t *testing.T) {
	first, static := selfOf(t, daemonPod(t))
	require.Regexp(t, "^[0-9a-f]{32}$", string(static.UID))

	next := daemonPod(t)
	next.Name, next.UID, next.ResourceVersion = "pod-checkpointer-b9qzw", "2e", "4712"
	next.Labels["controller-revision-hash"] = "7f9"
	next.Annotations["example.com/rolled-at"] = "today"
	next.Status.Phase = v1.PodPending
	next.Spec.Volumes[4].Name = "kube-api-access-fghij"
	next.Spec.InitContainers[0].VolumeMounts[1].Name = "kube-api-access-fghij"
	next.Spec.Containers[0].VolumeMounts[4].Name = "kube-api-access-fghij"
	again, _ := selfOf(t, next)
	require.Equal(t, first, again)

	for what, change := range map[string]func(*v1.Pod){
		"image":   func(p *v1.Pod) { p.Spec.Containers[0].Image += ".1" },
		"flag":    func(p *v1.Pod) { p.Spec.Containers[0].Command[2] = "--proc=/proc" },
		"format":  func(p *v1.Pod) { p.Annotations[AnnotationFormat] = "2" },
		"address": func(p *v1.Pod) { p.Status.HostIP = "10.0.0.2" },
		"node":    func(p *v1.Pod) { p.Spec.NodeName = "master-2" },
	} {
		other := daemonPod(t)
		change(other)
		_, changed := selfOf(t, other)
		require.NotEqual(t, static.UID, changed.UID, what)
		require.Equal(t, static.Name, changed.Name, what)
	}
}

// The flag is the template's, and the address a literal as the downward API has it.
func TestSelfOfANodeWithIPv6(t *testing.T) {
	pod := daemonPod(t)
	pod.Status.HostIP = "fd00::1"
	_, static := selfOf(t, pod)
	require.Contains(t, static.Spec.Containers[0].Env, v1.EnvVar{Name: "HOST_IP", Value: "fd00::1"})
	require.Contains(t, static.Spec.Containers[0].Command, "--api-endpoint=https://$(HOST_IP):6443")
}

func TestSelfSpecIsIdempotent(t *testing.T) {
	_, static := selfOf(t, daemonPod(t))
	again := static.Spec.DeepCopy()
	require.NoError(t, selfSpec(again, source{pod: daemonPod(t)}))
	require.Equal(t, &static.Spec, again)
}

func TestSelfKeepsTheKubeletsRulesAndIsNoParent(t *testing.T) {
	_, static := selfOf(t, daemonPod(t))
	require.NoError(t, noReference(&static.Spec))
	verifyAlone(t, static)
	require.False(t, Wanted(static))
	require.Error(t, verify(static), "nor a checkpoint")
	require.Empty(t, static.Labels, "no selector finds it")
	require.Empty(t, static.Status)
}

func TestSelfRefusesByField(t *testing.T) {
	for field, change := range map[string]func(*v1.Pod){
		"spec.volumes[5].secret": func(p *v1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s", Optional: new(true)}}})
		},
		"spec.volumes[4].projected": func(p *v1.Pod) { // one that is mounted elsewhere is no service account
			p.Spec.Containers[0].VolumeMounts[4].MountPath = "/tokens"
		},
		"spec.containers[0].env[0].valueFrom": func(p *v1.Pod) {
			p.Spec.Containers[0].Env[0].ValueFrom = &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "k"}}
		},
		"spec.containers[0].env[1].valueFrom.fieldRef.fieldPath": func(p *v1.Pod) { p.Status = v1.PodStatus{} },
		"spec.initContainers[0].restartPolicy": func(p *v1.Pod) {
			p.Spec.InitContainers[0].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		},
		"spec.runtimeClassName":         func(p *v1.Pod) { p.Spec.RuntimeClassName = new("kata") },
		"metadata.name":                 func(p *v1.Pod) { p.OwnerReferences[0].Name = strings.Repeat("a", 250) },
		"metadata.ownerReferences":      func(p *v1.Pod) { p.OwnerReferences[0].Kind = "Job" },
		"spec.volumes[0].hostPath.path": func(p *v1.Pod) { p.Spec.Volumes[0].HostPath.Path = "proc" },
	} {
		pod := daemonPod(t)
		change(pod)
		_, err := Self(pod)
		require.Equal(t, field, unprotectable(t, err).Field)
	}
	unbound := daemonPod(t)
	unbound.Spec.NodeName = ""
	_, err := Self(unbound)
	require.ErrorContains(t, err, "bound to no node")
}
