package store

import (
	"encoding/json"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

// unpack puts a state directory of testdata on a disk.
func unpack(t *testing.T, file string) *durable.Disk {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	require.NoError(t, err)
	disk := durable.NewDisk()
	d := dirOf(t, disk)
	for _, f := range archive.Files {
		require.NoError(t, d.Mkdir(path.Dir(f.Name), 0o700))
		sub, err := d.Sub(path.Dir(f.Name))
		require.NoError(t, err)
		require.NoError(t, sub.WriteFile(path.Base(f.Name), f.Data, 0o600))
	}
	return disk
}

// A state directory that an earlier daemon wrote is read to the last field, and
// serves: its generations can be staged, and written after.
func TestFormat1IsRead(t *testing.T) {
	s := openOn(t, unpack(t, "testdata/format-1.txtar"))
	require.Empty(t, s.Problems())
	assert.Equal(t, Node{
		Format: 1, Name: "master-1", NodeIP: "10.0.0.1",
		NodeUID: "11111111-2222-3333-4444-555555555555", KubeSystemUID: "66666666-7777-8888-9999-000000000000",
	}, s.Node())
	w, ok := s.Workload(api)
	require.True(t, ok)
	require.Empty(t, w.Problems)
	assert.Equal(t, State{
		Number: 1, KnownGood: 1, KnownGoodContainer: "beef",
		Activation: &Activation{ID: id1, Generation: 1, BootID: "b007", At: time.Minute, ServedBy: "cafe"},
		Failures:   1,
		Handoff: &Handoff{
			BootID: "b007", At: 2 * time.Minute, Activation: id1, ParentUID: "u1", Container: "c1", HeldAt: 3 * time.Minute, RollingBack: true,
		},
		Rollbacks: 2, RetryAt: 4 * time.Minute, RetryBoot: "b007", FailedParent: "u1",
	}, w.State)
	require.Len(t, w.Generations, 2)
	newest, first := w.Generations[0], w.Generations[1]
	assert.Equal(t, []int64{2, 1}, []int64{newest.Seq, first.Seq})
	assert.Equal(t, "c0ffee", newest.Source.ContainerID)
	assert.Equal(t, first.Spec, newest.Spec, "only the Secret differs")
	assert.NotEqual(t, first.Payloads, newest.Payloads)

	staged, err := s.Stage(api, 2, id2, nil)
	require.NoError(t, err)
	key, err := s.dir.ReadFile(strings.TrimPrefix(staged["certs"], "/state/") + "/..data/apiserver.key")
	require.NoError(t, err)
	assert.Equal(t, "\x00\xff\n-- renewed", string(key))
	assert.EqualValues(t, 3, commit(t, s, api, "next"))
}

// What is written today has the fields that an earlier daemon of this format
// reads: each file of the fixture, written again, says the same.
func TestFormat1IsWritten(t *testing.T) {
	old := openOn(t, unpack(t, "testdata/format-1.txtar"))
	w, _ := old.Workload(api)
	disk := durable.NewDisk()
	s := openOn(t, disk)
	for seq := int64(1); seq <= 2; seq++ {
		g := w.Generations[2-seq]
		d := Draft{Pod: g.Pod, Source: g.Source}
		for name, digest := range g.Payloads {
			d.Volumes = append(d.Volumes, Volume{Name: name, Files: filesOf(t, old, digest)})
		}
		_, err := s.Commit(api, d)
		require.NoError(t, err)
	}
	state := w.State
	state.Number = 0
	_, err := s.SetState(api, state)
	require.NoError(t, err)
	require.NoError(t, s.SetNode(old.Node()))
	_, err = s.Stage(api, 1, id1, nil)
	require.NoError(t, err)

	archive, err := txtar.ParseFile("testdata/format-1.txtar")
	require.NoError(t, err)
	for _, f := range archive.Files {
		data, err := s.dir.ReadFile(f.Name)
		require.NoError(t, err)
		assert.Equal(t, timeless(t, f.Data), timeless(t, data), f.Name)
	}
}

// filesOf reads a payload as the fixture has it.
func filesOf(t *testing.T, s *Store, digest string) []File {
	t.Helper()
	data, err := s.dir.ReadFile(payloadDir(digest) + "/payload.json")
	require.NoError(t, err)
	var body struct{ Files []File }
	require.NoError(t, json.Unmarshal(data, &body))
	require.NotEmpty(t, body.Files)
	return body.Files
}

// timeless is a file without its time, and without what follows from that.
func timeless(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var all map[string]any
	require.NoError(t, json.Unmarshal(data, &all))
	delete(all, "sha256")
	delete(all, "length")
	if body, ok := all["body"].(map[string]any); ok {
		delete(body, "written")
	}
	return all
}
