package store

import (
	"path"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

func TestContentsAreThoseOfTheGeneration(t *testing.T) {
	k := durable.NewDisk()
	s := openOn(t, k)
	for _, text := range []string{"a", "b"} {
		_, err := s.Commit(api, draft(text))
		require.NoError(t, err)
	}
	s = openOn(t, k)
	for seq, text := range map[int64]string{1: "a", 2: "b"} {
		volumes, err := s.Contents(api, seq)
		require.NoError(t, err)
		require.Len(t, volumes, 2)
		require.Equal(t, "certs", volumes[0].Name)
		want := draft(text).Volumes[0].Files
		require.ElementsMatch(t, want, volumes[0].Files)
		require.Equal(t, Volume{Name: "empty"}, volumes[1])
	}
	_, err := s.Contents(api, 3)
	require.EqualError(t, err, "read kube-system/kube-apiserver: there is no generation 3")
	_, err = s.Contents(dns, 1)
	require.EqualError(t, err, "read kube-system/dns.core: there is no such workload")

	w, _ := s.Workload(api)
	bad := path.Join("payloads", w.Generations[0].Payloads["certs"], "payload.json")
	require.NoError(t, dirOf(t, k).WriteFile(bad, []byte("{}"), 0o600))
	_, err = s.Contents(api, 2)
	require.ErrorContains(t, err, "volume certs")
	require.ErrorContains(t, err, "its checksum is wrong")
}
