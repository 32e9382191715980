package store

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

func TestPruneKeepsWhatIsNeeded(t *testing.T) {
	k := durable.NewDisk()
	s := openOn(t, k)
	for i := range 12 {
		commit(t, s, api, fmt.Sprint(i+1))
	}
	commit(t, s, dns, "1") // its payloads are those of the first
	for id, seq := range map[string]int64{id1: 4, id2: 5, id3: 6} {
		_, err := s.Stage(api, seq, id, nil)
		require.NoError(t, err)
	}
	_, err := s.SetState(api, State{KnownGood: 2, Activation: &Activation{ID: id1, Generation: 4}})
	require.NoError(t, err)
	live := func(id string) bool { return id == id2 }
	require.NoError(t, s.Prune(live))

	check := func(s *Store) {
		w, _ := s.Workload(api)
		assert.Equal(t, []int64{12, 11, 10, 9, 8, 5, 4, 2}, seqs(w))
		w, _ = s.Workload(dns)
		assert.Equal(t, []int64{1}, seqs(w))
		assert.Empty(t, s.Problems())
	}
	check(s)
	check(openOn(t, k))
	all := files(t, dirOf(t, k))
	assert.Len(t, withPrefix(all, "payloads/"), 2*(8+1+1), "certs of 8 and of the other workload, and the empty one")
	assert.NotEmpty(t, withPrefix(all, "activations/"+id1))
	assert.NotEmpty(t, withPrefix(all, "activations/"+id2))
	assert.Empty(t, withPrefix(all, "activations/"+id3))
	assert.Equal(t, int64(13), commit(t, openOn(t, k), api, "13"))
}

func TestPruneKeepsTreeOfHandoff(t *testing.T) {
	k := durable.NewDisk()
	s := openOn(t, k)
	commit(t, s, api, "1")
	_, err := s.Stage(api, 1, id1, nil)
	require.NoError(t, err)
	_, err = s.SetState(api, State{Handoff: &Handoff{Activation: id1}})
	require.NoError(t, err)
	require.NoError(t, s.Prune(func(string) bool { return false }))
	assert.NotEmpty(t, withPrefix(files(t, dirOf(t, k)), "activations/"+id1))
}

func TestPruneKeepsAllWhileALiveTreeIsUnknown(t *testing.T) {
	k := durable.NewDisk()
	s := openOn(t, k)
	for i := range 8 {
		commit(t, s, api, fmt.Sprint(i))
	}
	_, err := s.Stage(api, 1, id1, nil)
	require.NoError(t, err)
	require.NoError(t, dirOf(t, k).WriteFile("activations/"+id1+"/activation.json", []byte("x"), 0o600))
	s = openOn(t, k)
	assert.Len(t, s.Problems(), 1)
	require.NoError(t, s.Prune(func(string) bool { return true }))
	w, _ := s.Workload(api)
	assert.Len(t, w.Generations, 8)
	_, err = s.Stage(api, 1, id1, nil)
	require.Error(t, err, "a tree of unknown origin is never handed out")
	require.NoError(t, s.Prune(func(string) bool { return false }))
	w, _ = s.Workload(api)
	assert.Len(t, w.Generations, 5)
}
