package snapshot

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

func TestFixedVolumes(t *testing.T) {
	const bin = "/opt/pod-checkpointer/bin/lock-exec"
	payload := v1.Volume{Name: "keys", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Type: new(v1.HostPathDirectory)}}}
	hostPath := v1.Volume{Name: "keys", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/etc/keys"}}}
	at := func(mountPath string) v1.VolumeMount { return v1.VolumeMount{Name: "keys", MountPath: mountPath} }
	for _, tt := range []struct {
		promise string
		volume  v1.Volume
		command []string
		mount   v1.VolumeMount
		fixed   bool
	}{
		{"a plain mount is refreshed", payload, []string{"web"}, at("/keys"), false},
		{"a subPath is not", payload, nil, v1.VolumeMount{Name: "keys", MountPath: "/keys/a", SubPath: "a"}, true},
		{"nor is one with variables", payload, nil, v1.VolumeMount{Name: "keys", MountPath: "/keys/a", SubPathExpr: "$(X)"}, true},
		{"nor environment", payload, []string{bin, "--env-dir", "/env", "--", "web"}, at("/env/"), true},
		{"in either spelling", payload, []string{bin, "--lock", "/lock/web.lock", "-env-dir=/env", "web"}, at("/env"), true},
		{"also a directory in it", payload, []string{bin, "--env-dir=/env/a", "--", "web"}, at("/env"), true},
		{"what the program makes of its flags is another matter", payload, []string{bin, "--lock", "/lock/web.lock", "--", "web", "--env-dir", "/env"}, at("/env"), false},
		{"other mounts of lock-exec's are", payload, []string{bin, "--env-dir", "/env", "--", "web"}, at("/environment"), false},
		{"another volume's subPath", payload, nil, v1.VolumeMount{Name: "other", MountPath: "/keys/a", SubPath: "a"}, false},
		{"a directory of the host is none of ours", hostPath, nil, v1.VolumeMount{Name: "keys", MountPath: "/keys/a", SubPath: "a"}, false},
	} {
		t.Run(tt.promise, func(t *testing.T) {
			spec := &v1.PodSpec{
				Volumes:        []v1.Volume{{Name: "other"}, tt.volume},
				InitContainers: []v1.Container{{Name: "init"}},
				Containers:     []v1.Container{{Name: "web", Command: tt.command, VolumeMounts: []v1.VolumeMount{{Name: "x", MountPath: "/x"}, tt.mount}}},
			}
			want := map[bool][]string{true: {"keys"}}[tt.fixed]
			require.Equal(t, want, fixed(spec))
			spec.InitContainers, spec.Containers = spec.Containers, spec.InitContainers
			require.Equal(t, want, fixed(spec), "so it is with an init container")
		})
	}
}

func TestTheEnvironmentThatAnySnapshotHasIsFixed(t *testing.T) {
	for _, container := range []string{
		`{command: [web], envFrom: [{secretRef: {name: db}}]}`,
		`{image: "entry:1", env: [{name: P, valueFrom: {secretKeyRef: {name: db, key: PASSWORD}}}]}`,
		`{command: [/opt/pod-checkpointer/bin/lock-exec, --env-dir, /scratch, --, web], envFrom: [{secretRef: {name: db}}], volumeMounts: [{name: scratch, mountPath: /scratch}]}`,
	} {
		s, err := Take(envPod(t, container), testObjects(t), Config{LockDir: lockDir, BinDir: binDir})
		require.NoError(t, err)
		require.Equal(t, []string{envVolume + "0"}, s.Fixed, container)
	}
}
