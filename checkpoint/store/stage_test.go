package store

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

func TestStagedTreeIsAsTheKubeletsOwn(t *testing.T) {
	dir, err := durable.Create(filepath.Join(t.TempDir(), "state"), 0o700)
	require.NoError(t, err)
	s, err := Open(dir)
	require.NoError(t, err)
	commit(t, s, api, "one")
	paths, err := s.Stage(api, 1, id1, nil)
	require.NoError(t, err)
	base := filepath.Join(dir.Path(), "activations", id1)
	assert.Equal(t, map[string]string{"certs": base + "/certs", "empty": base + "/empty"}, paths)

	w, _ := s.Workload(api)
	certs, empty := "..", ".."
	certs += w.Generations[0].Payloads["certs"]
	empty += w.Generations[0].Payloads["empty"]
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(base, func(name string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := e.Info()
		require.NoError(t, err)
		rel, _ := filepath.Rel(base, name)
		found[rel] = info.Mode().String()
		if target, err := os.Readlink(name); err == nil {
			found[rel] += " -> " + target
		}
		return nil
	}))
	assert.Equal(t, map[string]string{
		".": "drwxr-xr-x", "activation.json": "-rw-------",
		"certs":                          "drwxr-xr-x",
		"certs/" + certs:                 "drwxr-xr-x",
		"certs/" + certs + "/tls.key":    "-r--------",
		"certs/" + certs + "/ca":         "drwxr-xr-x",
		"certs/" + certs + "/ca/tls.crt": "-r--r--r--",
		"certs/..data":                   "Lrwxrwxrwx -> " + certs,
		"certs/tls.key":                  "Lrwxrwxrwx -> ..data/tls.key",
		"certs/ca":                       "Lrwxrwxrwx -> ..data/ca",
		"empty":                          "drwxr-xr-x",
		"empty/" + empty:                 "drwxr-xr-x",
		"empty/..data":                   "Lrwxrwxrwx -> " + empty,
	}, found)
	data, err := os.ReadFile(base + "/certs/ca/tls.crt")
	require.NoError(t, err)
	assert.Equal(t, "crt one", string(data))

	again, err := s.Stage(api, 1, id1, nil)
	require.NoError(t, err, "once more is fine")
	assert.Equal(t, paths, again)
	commit(t, s, api, "two")
	_, err = s.Stage(api, 2, id1, nil)
	require.ErrorContains(t, err, "activation "+id1+" is of generation 1 of kube-system/kube-apiserver")
	_, err = s.Stage(api, 3, id2, nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = s.Stage(dns, 1, id2, nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestStagedVolumeHasItsMountPoints(t *testing.T) {
	k := durable.NewDisk()
	s := openOn(t, k)
	commit(t, s, api, "one")
	_, err := s.Stage(api, 1, id1, map[string][]string{"certs": {"ca/more", "etcd"}, "other": {"x"}})
	require.NoError(t, err)
	base := "activations/" + id1 + "/certs/"
	entries, err := dirOf(t, k).ReadDir("activations/" + id1 + "/certs")
	require.NoError(t, err)
	kinds := map[string]fs.FileMode{}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "..") {
			kinds[e.Name()] = e.Type()
		}
	}
	require.Equal(t, map[string]fs.FileMode{"ca": fs.ModeDir, "etcd": fs.ModeDir, "tls.key": fs.ModeSymlink}, kinds)
	info, err := dirOf(t, k).Stat(base + "ca/more")
	require.NoError(t, err)
	require.Equal(t, fs.ModeDir|0o755, info.Mode())
}

func TestStagedFilesHaveTheirOwners(t *testing.T) {
	k := durable.NewDisk()
	s := openOn(t, k)
	d := draft("one")
	d.Volumes[0].Files[0].UID, d.Volumes[0].Files[0].GID = 65532, 65533
	_, err := s.Commit(api, d)
	require.NoError(t, err)
	_, err = s.Stage(api, 1, id1, nil)
	require.NoError(t, err)
	info, err := dirOf(t, k).Stat("activations/" + id1 + "/certs/tls.key")
	require.NoError(t, err)
	stat := info.Sys().(*syscall.Stat_t)
	assert.Equal(t, []uint32{65532, 65533}, []uint32{stat.Uid, stat.Gid})
	assert.Equal(t, fs.FileMode(0o400), info.Mode())
}
