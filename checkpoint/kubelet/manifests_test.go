package kubelet

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

const ourFile = "pod-checkpointer-kube-system.kube-apiserver.json"

const our = `{"apiVersion": "v1", "kind": "Pod", "metadata": {
	"name": "kube-apiserver-checkpoint-0123abcd", "namespace": "kube-system", "uid": "0123abcd",
	"annotations": {
		"pod-checkpointer.io/checkpoint-of": "kube-system/kube-apiserver",
		"pod-checkpointer.io/generation": "7",
		"pod-checkpointer.io/activation": "0123abcd"}}}`

const foreign = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: etcd\n  namespace: kube-system\nspec: {containers: [{name: etcd}]}\n"

func put(t *testing.T, dir, file, data string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(data), 0o600))
}

func openManifests(t *testing.T, dir string) *Manifests {
	t.Helper()
	m, err := OpenManifests(dir, "Node-1")
	require.NoError(t, err)
	return m
}

func TestListTellsOursFromForeign(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, ourFile, our)
	put(t, dir, "etcd.yaml", foreign)
	put(t, dir, "no-extension", strings.ReplaceAll(foreign, "  namespace: kube-system\n", ""))
	l, err := openManifests(t, dir).List()
	require.NoError(t, err)
	assert.Equal(t, Listing{
		Ours: []Manifest{{
			File: ourFile, Namespace: "kube-system", Workload: "kube-apiserver",
			Activation: "0123abcd", Generation: 7, UID: "0123abcd",
			PodName: "kube-apiserver-checkpoint-0123abcd-node-1", Data: []byte(our),
		}},
		Foreign: []Pod{
			{File: "etcd.yaml", Namespace: "kube-system", Name: "etcd-node-1"},
			{File: "no-extension", Namespace: "default", Name: "etcd-node-1"},
		},
	}, l)
}

func TestOursIsWhatItsAnnotationsSay(t *testing.T) {
	for name, data := range map[string]string{
		"of another namespace":   strings.Replace(our, `"kube-system/`, `"default/`, 1),
		"of no workload":         strings.Replace(our, "kube-system/kube-apiserver", "kube-system/", 1),
		"without a slash":        strings.Replace(our, "kube-system/kube-apiserver", "kube-apiserver", 1),
		"generation no number":   strings.Replace(our, `"7"`, `"seven"`, 1),
		"without the annotation": strings.Replace(our, "checkpoint-of", "checkpoint", 1),
	} {
		require.NotEqual(t, our, data, name)
		dir := t.TempDir()
		put(t, dir, ourFile, data)
		m := openManifests(t, dir)
		l, err := m.List()
		require.NoError(t, err, name)
		assert.Empty(t, l.Ours, name)
		assert.Len(t, l.Foreign, 1, name)
		assert.ErrorIs(t, m.Write(ourFile, []byte(our)), ErrForeign, name)
		assert.ErrorIs(t, m.Remove(ourFile), ErrForeign, name)
		assert.Error(t, m.Write("other.json", []byte(data)), name)
	}
}

func TestFilesThatAreNoPodAreProblemsAndStay(t *testing.T) {
	dir := t.TempDir()
	bad := map[string]string{
		"config.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
		"half.json":    `{"apiVersion": "v1", "kind": "Po`,
		"empty":        "",
		"nameless":     "apiVersion: v1\nkind: Pod\n",
		"README":       "static pods live here",
		"pod.yaml~":    "\tnot yaml",
		"version.yaml": strings.Replace(foreign, "v1", "v2", 1),
		"big.json":     our + strings.Repeat(" ", 10<<20),
	}
	for file, data := range bad {
		put(t, dir, file, data)
	}
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	require.NoError(t, os.Symlink("/nowhere", filepath.Join(dir, "dangling")))
	m := openManifests(t, dir)
	l, err := m.List()
	require.NoError(t, err)
	assert.Empty(t, l.Ours)
	assert.Empty(t, l.Foreign)
	require.Len(t, l.Problems, len(bad)+2)
	for _, p := range l.Problems {
		assert.True(t, strings.HasPrefix(p.String(), dir+"/"), p.String())
	}
	for file, data := range bad {
		require.ErrorIs(t, m.Write(file, []byte(our)), ErrForeign)
		require.ErrorIs(t, m.Remove(file), ErrForeign)
		got, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		assert.Equal(t, data, string(got))
	}
	require.ErrorIs(t, m.Remove("pipe"), ErrForeign, "nor is a pipe read for ever")
}

func TestWhatIsLeftOfOneOfOursIsReplaced(t *testing.T) {
	for _, left := range []string{"", "{", our[:len(our)/2]} {
		dir := t.TempDir()
		put(t, dir, ourFile, left)
		m := openManifests(t, dir)
		l, err := m.List()
		require.NoError(t, err)
		require.Len(t, l.Problems, 1)
		require.True(t, l.Problems[0].Read, "the kubelet runs nothing of it")
		require.NoError(t, m.Write(ourFile, []byte(our)))
		l, err = m.List()
		require.NoError(t, err)
		require.Len(t, l.Ours, 1)
	}
}

func TestWhatTheKubeletSkipsIsSkipped(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, ".etcd.yaml.swp", foreign)
	put(t, dir, durable.TempPrefix+"left-by-a-crash", "half")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "backup"), 0o700))
	put(t, filepath.Join(dir, "backup"), "etcd.yaml", foreign)
	_, err := openManifests(t, dir).ReadOnly().List()
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, durable.TempPrefix+"left-by-a-crash"), "somebody may be writing it")
	l, err := openManifests(t, dir).List()
	require.NoError(t, err)
	assert.Equal(t, Listing{}, l)
	assert.FileExists(t, filepath.Join(dir, ".etcd.yaml.swp"), "not ours")
	assert.NoFileExists(t, filepath.Join(dir, durable.TempPrefix+"left-by-a-crash"))
}

func TestLinksAreFollowedAsTheKubeletDoes(t *testing.T) {
	real, link := t.TempDir(), filepath.Join(t.TempDir(), "manifests")
	put(t, real, "elsewhere", foreign)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(real, "elsewhere"), filepath.Join(dir, "etcd.yaml")))
	require.NoError(t, os.Symlink(dir, link))
	m := openManifests(t, link)
	require.NoError(t, m.Write(ourFile, []byte(our)))
	l, err := m.List()
	require.NoError(t, err)
	assert.Empty(t, l.Problems)
	assert.Len(t, l.Ours, 1)
	assert.Equal(t, []Pod{{File: "etcd.yaml", Namespace: "kube-system", Name: "etcd-node-1"}}, l.Foreign)
	assert.FileExists(t, filepath.Join(dir, ourFile))
}

func TestWriteAndRemove(t *testing.T) {
	dir := t.TempDir()
	m := openManifests(t, dir)
	require.NoError(t, m.Remove(ourFile), "absent is no error")
	require.NoError(t, m.Write(ourFile, []byte(our)))
	info, err := os.Stat(filepath.Join(dir, ourFile))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode())

	next := strings.ReplaceAll(our, "0123abcd", "4567abcd")
	require.NoError(t, m.Write(ourFile, []byte(next)), "one of ours is replaced")
	l, err := m.List()
	require.NoError(t, err)
	require.Len(t, l.Ours, 1)
	assert.Equal(t, next, string(l.Ours[0].Data))
	require.NoError(t, m.Remove(ourFile))
	require.NoError(t, m.Remove(ourFile))
	assert.NoFileExists(t, filepath.Join(dir, ourFile))
}

func TestForeignFileIsNeverTouched(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "etcd.yaml", foreign)
	m := openManifests(t, dir)
	for _, err := range []error{m.Write("etcd.yaml", []byte(our)), m.Remove("etcd.yaml")} {
		require.ErrorIs(t, err, ErrForeign)
		assert.ErrorContains(t, err, dir+"/etcd.yaml: ")
		assert.ErrorContains(t, err, "move it out of the directory")
	}
	got, err := os.ReadFile(filepath.Join(dir, "etcd.yaml"))
	require.NoError(t, err)
	assert.Equal(t, foreign, string(got))
}

func TestWriteRefusesWhatItCouldNotRecognise(t *testing.T) {
	dir := t.TempDir()
	m := openManifests(t, dir)
	for file, data := range map[string]string{
		"foreign.yaml": foreign, "broken": "{", ".hidden": our, "../x": our, "a/b": our, "": our,
	} {
		assert.Error(t, m.Write(file, []byte(data)), file)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestDirectoryMayComeGoAndComeBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	m := openManifests(t, dir)
	absent := func() {
		t.Helper()
		_, err := m.List()
		for _, err := range []error{err, m.Write(ourFile, []byte(our)), m.Remove(ourFile)} {
			require.ErrorIs(t, err, fs.ErrNotExist)
			assert.ErrorContains(t, err, dir)
			assert.ErrorContains(t, err, "--static-pod-dir")
		}
	}
	absent()
	for range 2 {
		require.NoError(t, os.Mkdir(dir, 0o755))
		put(t, dir, durable.TempPrefix+"x", "half")
		require.NoError(t, m.Write(ourFile, []byte(our)))
		assert.NoFileExists(t, filepath.Join(dir, durable.TempPrefix+"x"))
		require.NoError(t, os.RemoveAll(dir))
		absent()
	}

	// Made anew between two calls.
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, m.Write(ourFile, []byte(our)))
	require.NoError(t, os.Rename(dir, dir+".old"))
	require.NoError(t, os.Mkdir(dir, 0o755))
	l, err := m.List()
	require.NoError(t, err)
	assert.Empty(t, l.Ours)
	require.NoError(t, m.Write(ourFile, []byte(our)))
	assert.FileExists(t, filepath.Join(dir, ourFile))
}

func TestDirectoryThatIsAFileIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "manifests")
	put(t, filepath.Dir(file), "manifests", "")
	_, err := openManifests(t, file).List()
	assert.ErrorContains(t, err, file+": not a directory")
}

func TestReadOnlyDirectoryIsListedAndNamed(t *testing.T) {
	disk := durable.NewDisk()
	dir, err := disk.Dir("/etc/kubernetes/manifests")
	require.NoError(t, err)
	require.NoError(t, dir.WriteFile(ourFile, []byte(our), 0o600))
	require.NoError(t, dir.WriteFile(durable.TempPrefix+"x", nil, 0o600))
	disk.Fail(func(op, _ string) error {
		switch op {
		case "create", "rename", "remove", "chmod", "mkdir":
			return syscall.EROFS
		}
		return nil
	})
	m := NewManifests(dir, "node-1")
	l, err := m.List()
	require.NoError(t, err)
	assert.Len(t, l.Ours, 1)
	for _, err := range []error{m.Write(ourFile, []byte(our)), m.Remove(ourFile)} {
		require.ErrorIs(t, err, syscall.EROFS)
		assert.ErrorContains(t, err, "static pod directory (--static-pod-dir): ")
		assert.ErrorContains(t, err, "/etc/kubernetes/manifests/")
	}

	disk.Fail(nil)
	require.NoError(t, m.Remove(ourFile))
	_, err = dir.Stat(durable.TempPrefix + "x")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = dir.Stat(ourFile)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestManifestsSurviveAPowerCut(t *testing.T) {
	disk := durable.NewDisk()
	dir, err := disk.Dir("/manifests")
	require.NoError(t, err)
	reboot := func() *Manifests {
		disk.Crash()
		dir, err = disk.Dir("/manifests")
		require.NoError(t, err)
		return NewManifests(dir, "node-1")
	}
	require.NoError(t, NewManifests(dir, "node-1").Write(ourFile, []byte(our)))
	m := reboot()
	l, err := m.List()
	require.NoError(t, err)
	require.Len(t, l.Ours, 1)
	require.NoError(t, m.Remove(ourFile))
	l, err = reboot().List()
	require.NoError(t, err)
	assert.Empty(t, l.Ours)
}

func TestPathsThatTheKubeletCannotGlobAreRefused(t *testing.T) {
	for _, path := range []string{"", "manifests", "/etc/*/manifests", "/etc/[x]", `/etc/\x`, "/etc/?"} {
		_, err := OpenManifests(path, "node-1")
		assert.ErrorContains(t, err, "--static-pod-dir", path)
	}
}

func TestFileNamesDoNotCollide(t *testing.T) {
	assert.Equal(t, ourFile, File("kube-system", "kube-apiserver"))
	long := strings.Repeat("w", 253)
	workloads := [][2]string{
		{"a-b", "c"}, {"a", "b-c"}, {"a", "b.c"}, {"a", "b"},
		{strings.Repeat("n", 63), long}, {strings.Repeat("n", 63), long[1:] + "x"}, {strings.Repeat("n", 62), long},
	}
	names := map[string]bool{}
	for _, w := range workloads {
		name := File(w[0], w[1])
		names[name] = true
		assert.LessOrEqual(t, len(name), 255)
		assert.True(t, strings.HasPrefix(name, "pod-checkpointer-"), name)
	}
	assert.Len(t, names, len(workloads))
}
