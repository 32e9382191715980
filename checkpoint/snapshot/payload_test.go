package snapshot

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

func TestPodOf100Volumes(t *testing.T) {
	pod := guardedPod(t)
	objects := Objects{Secrets: map[string]*v1.Secret{}}
	for i := range 100 {
		name := fmt.Sprintf("secret-%d", i)
		objects.Secrets[name] = &v1.Secret{Data: map[string][]byte{"key": []byte(name)}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: name}}})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	require.True(t, verifySnapshot(t, pod, objects))
	s, err := Take(pod, objects, config)
	require.NoError(t, err)
	require.Len(t, s.Volumes, 100)
	for _, v := range s.Volumes {
		assert.Equal(t, v.Name, string(v.Files[0].Data))
	}
}

// A megabyte is the most that the API server takes. The payload is a copy, since
// the Secret is the caller's.
func TestSecretOfAMegabyte(t *testing.T) {
	pod := guardedPod(t)
	secret(v1.SecretVolumeSource{})(pod)
	data := bytes.Repeat([]byte{0xff}, 1<<20)
	s, err := Take(pod, Objects{Secrets: map[string]*v1.Secret{"cert": {Data: map[string][]byte{"a": data}}}}, config)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, s.Volumes[0].Files[0].Data))
	data[0] = 0
	require.Equal(t, byte(0xff), s.Volumes[0].Files[0].Data[0])
}

// The user of a token is that of all containers, init containers among them; of
// other files it is root.
func TestOwnersOfTokens(t *testing.T) {
	user := func(id int64) *v1.SecurityContext { return &v1.SecurityContext{RunAsUser: &id} }
	for _, tt := range []struct {
		name   string
		change func(*v1.Pod)
		want   string
	}{
		{"of nobody", func(*v1.Pod) {}, "-rw-r--r-- 0:0"},
		{"of the pod's user", func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64(5))} }, "-rw------- 5:0"},
		{"of root by name", func(p *v1.Pod) { p.Spec.Containers[0].SecurityContext = user(0) }, "-rw------- 0:0"},
		{"of the container's own", func(p *v1.Pod) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64(5))}
			p.Spec.Containers[0].SecurityContext = user(6)
		}, "-rw------- 6:0"},
		{"of two", func(p *v1.Pod) {
			p.Spec.Containers[0].SecurityContext = user(6)
			p.Spec.InitContainers = []v1.Container{{Name: "init", Image: "a", SecurityContext: user(7)}}
		}, "-rw-r--r-- 0:0"},
		{"of one and whoever the image says", func(p *v1.Pod) {
			p.Spec.Containers[0].SecurityContext = user(6)
			p.Spec.InitContainers = []v1.Container{{Name: "init", Image: "a"}}
		}, "-rw-r--r-- 0:0"},
		{"of a group", func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(8))} }, "-rw-r----- 0:8"},
		{"of the volume's", func(p *v1.Pod) {
			p.Spec.Containers[0].SecurityContext = user(6)
			p.Spec.Volumes[1].Projected.DefaultUser = new(int64(9))
		}, "-rw------- 9:0"},
		{"of its own", func(p *v1.Pod) {
			p.Spec.Volumes[1].Projected.DefaultUser = new(int64(9))
			p.Spec.Volumes[1].Projected.Sources[0].ServiceAccountToken.User = new(int64(10))
		}, "-rw------- 10:0"},
	} {
		pod := guardedPod(t)
		projected(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "a"}})(pod)
		tt.change(pod)
		s, err := Take(pod, Objects{Tokens: map[TokenRef]string{{ServiceAccount: "default"}: "x"}}, config)
		require.NoError(t, err)
		f := s.Volumes[0].Files[0]
		assert.Equal(t, tt.want, fmt.Sprintf("%v %d:%d", f.Mode, f.UID, f.GID), tt.name)
	}
}

// What is random in a parent's name of a volume makes no other generation.
func TestAccountVolumeLosesItsRandomName(t *testing.T) {
	named := func(names ...string) []string {
		pod := guardedPod(t)
		for i, name := range names {
			pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}}}}})
			pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: name, MountPath: fmt.Sprintf("/%d", i)})
		}
		s, err := Take(pod, Objects{Tokens: map[TokenRef]string{{ServiceAccount: "default"}: "x"}}, config)
		require.NoError(t, err)
		var volumes []string
		for i, v := range s.Volumes {
			volumes = append(volumes, v.Name)
			require.Equal(t, v.Name, s.Pod.Spec.Containers[0].VolumeMounts[2+i].Name)
		}
		return volumes
	}
	assert.Equal(t, []string{"kube-api-access"}, named("kube-api-access-x7k2p"))
	assert.Equal(t, []string{"kube-api-access-mine"}, named("kube-api-access-mine"), "not random")
	assert.Equal(t, []string{"kube-api-access-x7k2p", "kube-api-access"}, named("kube-api-access-x7k2p", "kube-api-access"), "taken")
	assert.Equal(t, []string{"kube-api-access-x7k2p", "kube-api-access-5d4fx"}, named("kube-api-access-x7k2p", "kube-api-access-5d4fx"), "which one is it?")
}
