package snapshot

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Who only speaks of the API server needs no lock.
func TestNameOfTheAPIServerIsNoAPIServer(t *testing.T) {
	for _, word := range []string{"--log-dir=/var/log/kube-apiserver", "https://kube-apiserver", "/var/log/kube-apiserver/audit.log", "kube-apiserver-proxy"} {
		pod := guardedPod(t)
		lockless(command("web", word))(pod)
		_, err := Take(pod, Objects{}, config)
		require.NoError(t, err, word)
	}
}
