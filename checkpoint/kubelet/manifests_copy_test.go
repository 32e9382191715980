package kubelet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ownCopy = `{"apiVersion": "v1", "kind": "Pod", "metadata": {
	"name": "pod-checkpointer-static", "namespace": "kube-system", "uid": "89abcdef",
	"annotations": {
		"pod-checkpointer.io/copy-of": "kube-system/pod-checkpointer",
		"pod-checkpointer.io/format": "1"}}}`

func TestTheStaticCopyIsOursAndNoCheckpoint(t *testing.T) {
	dir := t.TempDir()
	m := openManifests(t, dir)
	require.NoError(t, m.Write(CopyFile, []byte(ownCopy)))
	put(t, dir, "etcd.yaml", foreign)
	l, err := m.List()
	require.NoError(t, err)
	assert.Equal(t, Listing{
		Copies: []Copy{{
			File: CopyFile, Namespace: "kube-system", Workload: "pod-checkpointer", UID: "89abcdef",
			PodName: "pod-checkpointer-static-node-1", Data: []byte(ownCopy),
		}},
		Foreign: []Pod{{File: "etcd.yaml", Namespace: "kube-system", Name: "etcd-node-1"}},
	}, l)

	changed := strings.Replace(ownCopy, "89abcdef", "0123abcd", 1)
	require.NoError(t, m.Write(CopyFile, []byte(changed)))
	data, err := os.ReadFile(filepath.Join(dir, CopyFile))
	require.NoError(t, err)
	require.Equal(t, changed, string(data))
	require.NoError(t, m.Remove(CopyFile))
	require.NoFileExists(t, filepath.Join(dir, CopyFile))
	require.NotEqual(t, CopyFile, File("", ""))
}

// Unlike a checkpoint's, the name is one that a person may choose: whatever we did
// not write stays.
func TestAForeignFileWithTheNameOfTheStaticCopyStays(t *testing.T) {
	for name, data := range map[string]string{
		"of another namespace": strings.Replace(ownCopy, `"kube-system/`, `"default/`, 1),
		"of no workload":       strings.Replace(ownCopy, "kube-system/pod-checkpointer", "kube-system/", 1),
		"somebody's own":       foreign,
		"no pod":               "",
	} {
		dir := t.TempDir()
		put(t, dir, CopyFile, data)
		m := openManifests(t, dir)
		l, err := m.List()
		require.NoError(t, err, name)
		assert.Empty(t, l.Copies, name)
		assert.ErrorIs(t, m.Write(CopyFile, []byte(ownCopy)), ErrForeign, name)
		assert.ErrorIs(t, m.Remove(CopyFile), ErrForeign, name)
		found, err := os.ReadFile(filepath.Join(dir, CopyFile))
		require.NoError(t, err)
		assert.Equal(t, data, string(found), name)
	}
}
