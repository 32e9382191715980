package snapshot

import (
	"math/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// compareAny compares containers that nobody would write.
func (s stage) compareAny(t *testing.T, o Objects) {
	r, taken := rand.New(rand.NewSource(1)), 0
	for n := range 200 {
		c := anyContainer(r)
		text, err := yaml.Marshal(c)
		require.NoError(t, err)
		if _, err := s.compare(t, envPod(t, string(text)), o); err == nil {
			taken++
		}
		if t.Failed() {
			t.Fatalf("container %d:\n%s", n, text)
		}
	}
	t.Logf("%d taken", taken)
	require.Greater(t, taken, 100)
}

func anyContainer(r *rand.Rand) v1.Container {
	names := []string{"A", "B", "C", "USER", "PASSWORD", "HOST", "cost", "1st", "KUBERNETES_SERVICE_HOST", "IMAGE"}
	name := func() string { return names[r.Intn(len(names))] }
	text := func() string {
		var b strings.Builder
		for range r.Intn(5) {
			b.WriteString([]string{"$(" + name() + ")", "$(" + name() + ")", "$(" + name() + ")", "$$", "$", "$(", ")", "x"}[r.Intn(8)])
		}
		return b.String()
	}
	maybe := func() *bool {
		return []*bool{nil, new(true), new(true)}[r.Intn(3)]
	}
	c := v1.Container{Name: "web", Image: []string{"web:1", "entry:1", "cmd:1", "empty:1"}[r.Intn(4)]}
	for range r.Intn(3) {
		from := v1.EnvFromSource{Prefix: []string{"", "", "P_"}[r.Intn(3)]}
		if r.Intn(2) == 0 {
			from.SecretRef = &v1.SecretEnvSource{Optional: maybe()}
			from.SecretRef.Name = []string{"db", "other", "none"}[r.Intn(3)]
		} else {
			from.ConfigMapRef = &v1.ConfigMapEnvSource{Optional: maybe()}
			from.ConfigMapRef.Name = []string{"config", "more", "none"}[r.Intn(3)]
		}
		c.EnvFrom = append(c.EnvFrom, from)
	}
	for range r.Intn(6) {
		e := v1.EnvVar{Name: name()}
		switch r.Intn(6) {
		case 0:
			e.ValueFrom = &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: []string{"USER", "PASSWORD"}[r.Intn(2)], Optional: maybe()}}
			e.ValueFrom.SecretKeyRef.Name = []string{"db", "other"}[r.Intn(2)]
		case 1:
			e.ValueFrom = &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{Key: []string{"HOST", "cost"}[r.Intn(2)], Optional: maybe()}}
			e.ValueFrom.ConfigMapKeyRef.Name = []string{"config", "more"}[r.Intn(2)]
		case 2:
			e.ValueFrom = &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: []string{"status.podIP", "metadata.name", "metadata.uid"}[r.Intn(3)]}}
		default:
			e.Value = text()
		}
		c.Env = append(c.Env, e)
	}
	if r.Intn(3) > 0 {
		c.Command = []string{printing}
	} else if c.Image != "entry:1" {
		c.Args = []string{printing}
	}
	for range r.Intn(4) {
		c.Args = append(c.Args, text())
	}
	c.LivenessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{printing, text(), text()}}}}
	c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{printing, text()}}}}
	return c
}
