package snapshot

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

func TestHookThatSleepsForNoTimeIsDropped(t *testing.T) {
	pod := guardedPod(t)
	sleep := func(seconds int64) *v1.LifecycleHandler {
		return &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: seconds}}
	}
	pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: sleep(0), PreStop: sleep(1)}
	s, err := Take(pod, Objects{}, config)
	require.NoError(t, err)
	require.Equal(t, &v1.Lifecycle{PreStop: sleep(1)}, s.Pod.Spec.Containers[0].Lifecycle)
}

func TestOnlySidecarsKeepARestartPolicy(t *testing.T) {
	pod := guardedPod(t)
	for _, policy := range []v1.ContainerRestartPolicy{"Always", "OnFailure", "Never"} {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Name: strings.ToLower(string(policy)), Image: "a", RestartPolicy: &policy})
	}
	s, err := Take(pod, Objects{}, config)
	require.NoError(t, err)
	init := s.Pod.Spec.InitContainers
	require.Equal(t, new(v1.ContainerRestartPolicyAlways), init[0].RestartPolicy)
	require.Nil(t, init[1].RestartPolicy)
	require.Nil(t, init[2].RestartPolicy)
}

func TestSearchesThatAnOlderKubeletRefuses(t *testing.T) {
	pod := guardedPod(t)
	pod.Spec.DNSConfig = &v1.PodDNSConfig{Searches: []string{"example.com", "example.com."}}
	_, err := Take(pod, Objects{}, config)
	require.NoError(t, err)
	for _, search := range []string{".", "_sip._tcp.example.com"} {
		pod.Spec.DNSConfig.Searches[1] = search
		_, err = Take(pod, Objects{}, config)
		require.Equal(t, "spec.dnsConfig.searches[1]", unprotectable(t, err).Field)
	}
}
