package snapshot

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// A token that somebody put into a Secret is looked for where all clients do, and at
// boot the kubelet knows no Service by which to find the API server.
func TestSecretInPlaceOfAServiceAccountIsAClients(t *testing.T) {
	pod := guardedPod(t)
	secret(v1.SecretVolumeSource{})(pod)
	objects := Objects{Secrets: map[string]*v1.Secret{"cert": {Data: map[string][]byte{"token": nil}}}}
	s, err := Take(pod, objects, config)
	require.NoError(t, err)
	require.Empty(t, s.Pod.Spec.Containers[0].Env)

	pod.Spec.Containers[0].VolumeMounts[1].MountPath = accountPath + "/"
	s, err = Take(pod, objects, config)
	require.NoError(t, err)
	require.Equal(t, []v1.EnvVar{{Name: envHost, Value: "10.0.0.1"}, {Name: envPort, Value: "6443"}}, s.Pod.Spec.Containers[0].Env)
}

// Loopback is the node's for a pod on its network alone.
func TestLoopbackIsNoAddressForAPodNetwork(t *testing.T) {
	for _, endpoint := range []string{"https://127.0.0.1:6443", "https://[::1]:6443", "https://localhost:6443"} {
		pod := guardedPod(t)
		projected(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "a"}})(pod)
		objects := Objects{Tokens: map[TokenRef]string{{ServiceAccount: "default"}: "hush"}}
		c := Config{LockDir: lockDir, Endpoint: endpoint}
		_, err := Take(pod, objects, c)
		require.NoError(t, err)

		lockless(func(p *v1.Pod) { p.Spec.HostNetwork = false })(pod)
		_, err = Take(pod, objects, c)
		u := unprotectable(t, err)
		require.Equal(t, MissingEndpoint, u.Reason)
		require.Equal(t, "spec.containers[0].env", u.Field)
	}
}
