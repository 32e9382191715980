//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestCorpus: pods with one feature each are made by the API server and run by the
// kubelet. The daemon protects those that the corpus says it will, and of each other
// one names the field. Then the power is cut and the API server stays away: the
// kubelet runs the static pods of the first, each with the files, the environment and
// the arguments of its parent, and nothing of the others. With the API server the
// parents come back, and nobody but a pod ever sees what stands in a Secret.
func TestCorpus(t *testing.T) {
	s := begin(t)
	s.eyes.calm.Store(true)
	defer s.eyes.calm.Store(false)
	corpus := s.corpus()
	s.plant(corpus)
	corpus = s.says(corpus)
	said := verdict(corpus)
	parents := s.likenesses(corpus, s.parentOf)
	s.timeline.add(time.Now(), "each said as it is to be, and looked at")
	s.naive(corpus, "never")

	apiServer := s.powerCutForGood()
	s.awaitRunning(corpus, "checkpoints", s.checkpointOf)
	checkpoints := s.likenesses(corpus, s.checkpointOf)
	s.alike(corpus, parents, checkpoints)
	s.timeline.add(time.Now(), "checkpoints are as their parents were")
	s.awaitProbes(corpus)
	s.onlyTheAdmitted(corpus)
	s.naive(corpus, "offline")
	s.keptSecret(s.path(manifestDir))

	mirrors := s.watchMirrors()
	apiServer.comeBack()
	corpus = s.weed(corpus)
	s.awaitProtected()
	s.awaitHandedOver(corpus)
	mirrors.keptSecret()
	s.keptSecret(s.path("/var/log/pods"))
	s.uproot(corpus)
	s.tokensOutlive(parents, checkpoints)
	s.withFile(s.objects(), "delete")
	s.awaitSteady()
	fmt.Println(said)
}

// specimen is one pod of the corpus, as it stands in testdata/corpus. What its spec
// leaves open is as the plain pod's: a container pauses and mounts each volume that is
// not in Mounts at /vol and its name, and the pod is on the host's network.
type specimen struct {
	Name        string
	Refused     string // reason and field, as /status says them; "": protected
	Kubelet     string // refused, since a kubelet would run its static pod never, or not offline
	Kind        string // of its controller; "": it has none
	Lock        string
	Network     string // "pod": one of its own
	Debug       bool   // gets an ephemeral container
	Labels      map[string]string
	Annotations map[string]string
	Mounts      map[string]string // by volume
	Spec        corev1.PodSpec
}

func (p specimen) workload() string { return "corpus-" + p.Name }

// ofCorpus is on each of its pods, ofSpecimen with its name.
const ofCorpus, ofSpecimen = "of", "specimen"

// corpus is read from testdata, the protected ones first.
func (s *scene) corpus() []specimen {
	s.Helper()
	var all []specimen
	names := map[string]bool{}
	for _, file := range []string{"pods", "volumes", "environment", "refused"} {
		data, err := os.ReadFile(filepath.Join("testdata/corpus", file+".yaml"))
		require.NoError(s, err)
		var some []specimen
		require.NoError(s, yaml.UnmarshalStrict(data, &some), file)
		all = append(all, some...)
	}
	for _, p := range all {
		require.False(s, names[p.Name], "%s is there twice", p.Name)
		names[p.Name] = true
	}
	return all
}

// template is the specimen, whoever makes its pod.
func (s *scene) template(p specimen) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{Spec: *p.Spec.DeepCopy()}
	t.Labels = map[string]string{ofCorpus: "corpus", ofSpecimen: p.Name}
	for name, value := range p.Labels {
		t.Labels[name] = value
	}
	t.Annotations = map[string]string{"pod-checkpointer.io/checkpoint": "true"}
	for name, value := range p.Annotations {
		t.Annotations[name] = value
	}
	if p.Lock != "" {
		t.Annotations["pod-checkpointer.io/lock"] = p.Lock
	}
	spec := &t.Spec
	spec.HostNetwork = p.Network != "pod"
	spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	if spec.AutomountServiceAccountToken == nil {
		spec.AutomountServiceAccountToken = new(bool)
	}
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = new(int64(1))
	}
	if len(spec.Containers) == 0 {
		spec.Containers = []corev1.Container{{}}
	}
	for i := range spec.InitContainers {
		s.fill(p, &spec.InitContainers[i])
	}
	for i := range spec.Containers {
		s.fill(p, &spec.Containers[i])
	}
	return t
}

func (s *scene) fill(p specimen, c *corev1.Container) {
	if c.Name == "" {
		c.Name = "main"
	}
	switch c.Image {
	case "":
		c.Image = pauseImage
	case "kubernetes":
		c.Image = s.kubernetesImage()
	}
	if c.Command == nil { // empty: the image's
		c.Command = []string{"/pause"}
	}
	for _, v := range p.Spec.Volumes {
		path := p.Mounts[v.Name]
		if path == "" {
			path = "/vol/" + v.Name
		}
		if c.VolumeMounts == nil || p.Mounts[v.Name] != "" {
			c.VolumeMounts = append(slices.Clip(c.VolumeMounts), corev1.VolumeMount{Name: v.Name, MountPath: path})
		}
	}
}

// kubernetesImage is the one that the control plane runs.
func (s *scene) kubernetesImage() string {
	for _, pod := range s.eyes.sight().pods {
		if c, ok := pod.Container("kube-scheduler"); ok {
			return c.Image
		}
	}
	require.FailNow(s, "no scheduler runs")
	return ""
}

// object is what makes the specimen's pod. One without a controller needs no
// scheduler either, which would leave those that can't run without a node.
func (s *scene) object(p specimen) any {
	t, meta := s.template(p), metav1.ObjectMeta{Name: p.workload(), Namespace: "kube-system", Labels: map[string]string{ofCorpus: "corpus"}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{ofSpecimen: p.Name}}
	switch p.Kind {
	case "DaemonSet":
		return &appsv1.DaemonSet{TypeMeta: appsType(p.Kind), ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: t}}
	case "Deployment":
		return &appsv1.Deployment{TypeMeta: appsType(p.Kind), ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: t}}
	case "StatefulSet":
		return &appsv1.StatefulSet{TypeMeta: appsType(p.Kind), ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: t}}
	}
	require.Empty(s, p.Kind, p.Name)
	t.Spec.NodeName = s.eyes.sight().status.Node
	meta.Labels, meta.Annotations = t.Labels, t.Annotations
	return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta, Spec: t.Spec}
}

func appsType(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "apps/v1", Kind: kind} }

// says waits until /status says of each specimen what the corpus does. It returns
// those of which it does.
func (s *scene) says(corpus []specimen) []specimen {
	s.Helper()
	var told []specimen
	var wrong []string
	look := func(now sight) bool {
		told, wrong = nil, nil
		for _, p := range corpus {
			if w := now.workload("kube-system/" + p.status()); p.asSaid(w) {
				told = append(told, p)
			} else {
				wrong = append(wrong, fmt.Sprintf("%s is to be %q and is %s %s", p.Name, p.Refused, w.State, w.Why))
			}
		}
		return len(wrong) == 0
	}
	for end := time.Now().Add(2 * soon); !look(s.eyes.sight()) && time.Now().Before(end); {
		s.rest("/status to say what the corpus says")
	}
	assert.Empty(s, wrong, "what /status says")
	return told
}

// asSaid tells whether that is said of the specimen. Of the refused nothing may be on
// disk.
func (p specimen) asSaid(w checkpoint.WorkloadStatus) bool {
	if p.Refused == "" {
		return w.State == checkpoint.Protected && w.Generation > 0
	}
	return w.State == checkpoint.Unprotectable && w.Generation == 0 && strings.HasPrefix(w.Why, "unprotectable: "+p.Refused+": ")
}

// status is the name that /status has for it.
func (p specimen) status() string {
	if p.Kind == "StatefulSet" {
		return p.workload() + "-0"
	}
	return p.workload()
}

func verdict(corpus []specimen) string {
	admitted := 0
	for _, p := range corpus {
		if p.Refused == "" {
			admitted++
		}
	}
	return fmt.Sprintf("corpus: %d admitted, %d refused as said", admitted, len(corpus)-admitted)
}
