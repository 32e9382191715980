package snapshot

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// member is a guarded pod with a data directory in that volume.
func member(t testing.TB, dir string, volume v1.HostPathVolumeSource) *v1.Pod {
	t.Helper()
	pod := guardedPod(t)
	pod.Annotations[AnnotationData] = dir
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{HostPath: &volume}})
	return pod
}

func TestDataDirectoryIsKeptAndNeverMadeAnew(t *testing.T) {
	kind := func(t v1.HostPathType) *v1.HostPathType { return &t }
	for _, tt := range []struct {
		volume v1.HostPathVolumeSource
		want   v1.HostPathType
	}{
		{v1.HostPathVolumeSource{Path: "/var/lib/etcd"}, v1.HostPathDirectory},
		{v1.HostPathVolumeSource{Path: "/var/lib/etcd/", Type: kind(v1.HostPathDirectoryOrCreate)}, v1.HostPathDirectory},
		{v1.HostPathVolumeSource{Path: "/var/lib", Type: kind(v1.HostPathUnset)}, v1.HostPathDirectory},
		{v1.HostPathVolumeSource{Path: "/", Type: kind(v1.HostPathDirectory)}, v1.HostPathDirectory},
	} {
		s, err := Take(member(t, "/var/lib/etcd", tt.volume), Objects{}, config)
		require.NoError(t, err)
		require.Equal(t, Data{Path: "/var/lib/etcd"}, s.Data)
		volumes := s.Pod.Spec.Volumes
		require.Equal(t, tt.want, *volumes[len(volumes)-1].HostPath.Type)
		require.Nil(t, volumes[0].HostPath.Type, "of another volume")
	}
}

func TestDataDirectoryRemembersItsMember(t *testing.T) {
	s, err := Take(member(t, "/var/lib/etcd", v1.HostPathVolumeSource{Path: "/var/lib/etcd"}), Objects{}, config)
	require.NoError(t, err)
	before, err := json.Marshal(s.Pod)
	require.NoError(t, err)
	s.HoldsEtcd("etcd member 1 of cluster 2")
	data, err := json.Marshal(s.Pod)
	require.NoError(t, err)
	pod, err := Decode(data)
	require.NoError(t, err)
	facts, err := FactsOf(pod)
	require.NoError(t, err)
	require.Equal(t, Data{Path: "/var/lib/etcd", Etcd: "etcd member 1 of cluster 2"}, facts.Data)
	require.Equal(t, facts, s.Facts)

	s.HoldsEtcd("")
	after, err := json.Marshal(s.Pod)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
}

func TestDataDirectoryIsRefusedWhereItCanNotBeMeant(t *testing.T) {
	at := "metadata.annotations[pod-checkpointer.io/data]"
	volume := v1.HostPathVolumeSource{Path: "/var/lib/etcd"}
	for _, dir := range []string{"", "/", "etcd", "/var/lib/etcd/", "/var/lib/../etcd", "/var/lib/etcd2", "/var/lib"} {
		_, err := Take(member(t, dir, volume), Objects{}, config)
		var u *Unprotectable
		require.ErrorAs(t, err, &u, dir)
		require.Equal(t, []string{BadAnnotation, at}, []string{u.Reason, u.Field}, dir)
	}
	pod := member(t, "/var/lib/etcd", volume)
	pod.Annotations[AnnotationDataEtcd] = "etcd member 1 of cluster 2"
	_, err := Take(pod, Objects{}, config)
	require.ErrorContains(t, err, AlreadyCheckpoint)

	static := sanitized(t, "web")
	static.Annotations[AnnotationData] = "etcd"
	_, err = FactsOf(static)
	require.ErrorContains(t, err, "no path of a directory")
}
