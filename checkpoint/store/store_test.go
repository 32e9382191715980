package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

var (
	api = Key{"kube-system", "kube-apiserver"}
	dns = Key{"kube-system", "dns.core"}
)

const (
	id1 = "0123456789abcdef0123456789abcdef"
	id2 = "fedcba9876543210fedcba9876543210"
	id3 = "00000000000000000000000000000003"
)

// draft is a pod with two volumes, whose every part has the given text in it.
func draft(text string) Draft {
	uid, gid := os.Getuid(), os.Getgid()
	return Draft{
		Pod: json.RawMessage(`{"spec": {"x": "<` + text + `>"}}`),
		Volumes: []Volume{
			{Name: "certs", Files: []File{
				{Path: "tls.key", Data: []byte("key " + text), Mode: 0o400, UID: uid, GID: gid},
				{Path: "ca/tls.crt", Data: []byte("crt " + text), Mode: 0o444, UID: uid, GID: gid},
			}},
			{Name: "empty", Optional: true},
		},
		Source: Source{PodName: "p", PodUID: "u", Node: "n"},
	}
}

func node(name string) Node { return Node{Name: name, ResourceVersion: "7"} }

// pod is a pod's spelling in a generation.
func pod(text string) string { return `{"spec":{"x":"\u003c` + text + `\u003e"}}` }

func openOn(t testing.TB, k *durable.Disk) *Store {
	t.Helper()
	s, err := Open(dirOf(t, k))
	require.NoError(t, err)
	return s
}

func dirOf(t testing.TB, k *durable.Disk) *durable.Dir {
	t.Helper()
	d, err := k.Dir("/state")
	require.NoError(t, err)
	return d
}

func commit(t testing.TB, s *Store, k Key, text string) int64 {
	t.Helper()
	seq, err := s.Commit(k, draft(text))
	require.NoError(t, err)
	return seq
}

// files lists what stands below the state directory, with mode and contents.
func files(t testing.TB, d *durable.Dir) map[string]string {
	t.Helper()
	all := map[string]string{}
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := d.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			info, err := e.Info()
			require.NoError(t, err)
			all[name] = info.Mode().String()
			switch {
			case e.IsDir():
				walk(name)
			case e.Type().IsRegular():
				data, err := d.ReadFile(name)
				require.NoError(t, err)
				all[name] += " " + string(data)
			}
		}
	}
	walk(".")
	return all
}

func withPrefix(all map[string]string, prefix string) []string {
	var found []string
	for name := range all {
		if strings.HasPrefix(name, prefix) {
			found = append(found, name)
		}
	}
	return found
}

func TestWhatIsStoredIsThereAgain(t *testing.T) {
	machine, err := durable.Open(t.TempDir())
	require.NoError(t, err)
	for name, dir := range map[string]*durable.Dir{"real": machine, "twin": dirOf(t, durable.NewDisk())} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(dir)
			require.NoError(t, err)
			assert.Empty(t, s.Workloads())
			assert.Equal(t, int64(1), commit(t, s, api, "one"))
			assert.Equal(t, int64(2), commit(t, s, api, "two"))
			assert.Equal(t, int64(1), commit(t, s, dns, "dns"))
			state := State{
				KnownGood: 1, KnownGoodContainer: "c", Failures: 3, Rollbacks: 2, RetryAt: time.Second, RetryBoot: "b", FailedParent: "u",
				Activation: &Activation{ID: id1, Generation: 2, BootID: "b", At: time.Minute},
				Handoff:    &Handoff{BootID: "b", At: 1, Activation: id1, ParentUID: "u", Container: "c", HeldAt: 2, RollingBack: true},
			}
			stored, err := s.SetState(api, state)
			require.NoError(t, err)
			state.Number = 1
			assert.Equal(t, state, stored)
			require.NoError(t, s.SetNode(Node{Name: "n", NodeUID: "u", MachineID: "m", KubeSystemUID: "k", ResourceVersion: "9", NodeIP: "::1"}))
			_, err = s.Stage(api, 2, id1, nil)
			require.NoError(t, err)

			again, err := Open(dir)
			require.NoError(t, err)
			assert.Equal(t, s.Workloads(), again.Workloads())
			assert.Equal(t, s.Node(), again.Node())
			assert.Equal(t, Format, again.Node().Format)
			assert.Empty(t, again.Problems())

			all := again.Workloads()
			require.Len(t, all, 2)
			assert.Equal(t, []Key{dns, api}, []Key{all[0].Key, all[1].Key}, "by name")
			w, ok := again.Workload(api)
			require.True(t, ok)
			assert.Equal(t, all[1], w)
			assert.Equal(t, []int64{2, 1}, seqs(w), "newest first")
			assert.Equal(t, pod("two"), string(w.Generations[0].Pod))
			assert.Equal(t, draft("").Source, w.Generations[0].Source)
			assert.Equal(t, state, w.State)

			for name, found := range files(t, dir) {
				if !strings.HasPrefix(name, "activations/"+id1) {
					assert.Regexp(t, "^(drwx------|-rw-------)", found, name)
				}
			}
		})
	}
}

func seqs(w Workload) []int64 {
	var all []int64
	for _, g := range w.Generations {
		all = append(all, g.Seq)
	}
	return all
}

func TestAnswersAreCopies(t *testing.T) {
	s := openOn(t, durable.NewDisk())
	commit(t, s, api, "one")
	mine := State{Activation: &Activation{ID: id1}, Handoff: &Handoff{Activation: id1}}
	stored, err := s.SetState(api, mine)
	require.NoError(t, err)
	w, _ := s.Workload(api)
	for _, state := range []State{mine, stored, w.State} {
		state.Activation.ID, state.Handoff.Activation = "x", "x"
	}
	w.Generations[0].Seq = 9
	w, _ = s.Workload(api)
	assert.Equal(t, id1, w.State.Activation.ID)
	assert.Equal(t, id1, w.State.Handoff.Activation)
	assert.Equal(t, []int64{1}, seqs(w))
}

func TestEqualDraftWritesNothing(t *testing.T) {
	k := durable.NewDisk()
	s := openOn(t, k)
	commit(t, s, api, "one")
	s = openOn(t, k)
	require.NoError(t, s.SetNode(node("n")))
	k.Fail(func(op, name string) error { return fmt.Errorf("no disk is to be touched") })

	d := draft("one")
	d.Pod = json.RawMessage("{ \"spec\":\n{\"x\":\"\\u003cone>\"}}")
	d.Volumes[0], d.Volumes[1] = d.Volumes[1], d.Volumes[0]
	d.Volumes[1].Files[0], d.Volumes[1].Files[1] = d.Volumes[1].Files[1], d.Volumes[1].Files[0]
	d.Source = Source{PodName: "another parent"}
	seq, err := s.Commit(api, d)
	require.NoError(t, err)
	assert.Equal(t, int64(1), seq)
	require.NoError(t, s.SetNode(node("n")))
	require.NoError(t, s.Prune(func(string) bool { return false }))
}

func TestEveryDifferenceIsANewGeneration(t *testing.T) {
	for name, change := range map[string]func(d *Draft){
		"pod":         func(d *Draft) { d.Pod = json.RawMessage(`{}`) },
		"bytes":       func(d *Draft) { d.Volumes[0].Files[0].Data = []byte("x") },
		"path":        func(d *Draft) { d.Volumes[0].Files[0].Path = "x" },
		"mode":        func(d *Draft) { d.Volumes[0].Files[0].Mode = 0o440 },
		"user":        func(d *Draft) { d.Volumes[0].Files[0].UID++ },
		"group":       func(d *Draft) { d.Volumes[0].Files[0].GID++ },
		"one file":    func(d *Draft) { d.Volumes[0].Files = d.Volumes[0].Files[:1] },
		"volume":      func(d *Draft) { d.Volumes[0].Name = "x" },
		"no volume":   func(d *Draft) { d.Volumes = d.Volumes[:1] },
		"two volumes": func(d *Draft) { d.Volumes[0].Files = nil; d.Volumes[1].Files = draft("one").Volumes[0].Files },
	} {
		t.Run(name, func(t *testing.T) {
			s := openOn(t, durable.NewDisk())
			commit(t, s, api, "one")
			d := draft("one")
			change(&d)
			seq, err := s.Commit(api, d)
			require.NoError(t, err)
			assert.Equal(t, int64(2), seq)
			w, _ := s.Workload(api)
			assert.True(t, w.Generations[0].Same(d))
			assert.False(t, w.Generations[1].Same(d))
		})
	}
}

func TestWhatIsNotValidNeverBecomesAPath(t *testing.T) {
	long := strings.Repeat("a", 64)
	keys := []Key{
		{"", "w"}, {"n", ""}, {"..", "w"}, {"n", ".."}, {"n", "../../x"}, {"n/m", "w"}, {"/n", "w"}, {"N", "w"}, {"n", "W"},
		{"-n", "w"}, {"n-", "w"}, {"n.m", "w"}, {"n", "w..x"}, {"n", ".w"}, {"n", "w."}, {"n", "w.-x"}, {"n", "w_x"}, {"n\x00", "w"},
		{long, "w"}, {"n", strings.Repeat("a.", 127)}, {"ä", "w"}, {"n", "w x"},
	}
	volume := func(name string, files ...File) Draft {
		return Draft{Pod: json.RawMessage(`{}`), Volumes: []Volume{{Name: name, Files: files}}}
	}
	drafts := []Draft{
		{}, {Pod: json.RawMessage(`{`)},
		volume(""), volume(".."), volume("a/b"), volume("a.b"), volume(long),
		volume("v", File{Path: ""}), volume("v", File{Path: "."}), volume("v", File{Path: ".."}), volume("v", File{Path: "../x"}),
		volume("v", File{Path: "a/../../x"}), volume("v", File{Path: "/etc/passwd"}), volume("v", File{Path: "a//b"}),
		volume("v", File{Path: "..data"}), volume("v", File{Path: "..data/x"}), volume("v", File{Path: strings.Repeat("a", 256)}),
		volume("v", File{Path: strings.Repeat("a/", 2048) + "a"}), volume("v", File{Path: durable.TempPrefix + "0"}), volume("v", File{Path: "a\x00"}),
		volume("v", File{Path: "a"}, File{Path: "a"}), volume("v", File{Path: "a/b/c"}, File{Path: "a/b"}),
		volume("v", File{Path: "a", Mode: fs.ModeSetuid | 0o755}), volume("v", File{Path: "a", Mode: fs.ModeDir}),
		volume("v", File{Path: "a", UID: -1}), volume("v", File{Path: "a", GID: -1}),
		{Pod: json.RawMessage(`{}`), Volumes: []Volume{{Name: "v"}, {Name: "v"}}},
	}
	k := durable.NewDisk()
	s := openOn(t, k)
	for _, key := range keys {
		_, err := s.Commit(key, draft("x"))
		assert.Error(t, err, "%q", key)
	}
	for i, d := range drafts {
		_, err := s.Commit(api, d)
		assert.ErrorContains(t, err, "commit kube-system/kube-apiserver: ", "%d", i)
	}
	assert.Empty(t, files(t, dirOf(t, k)))
	commit(t, s, api, "x")
	for _, id := range []string{"", "..", "../x", id1[1:], strings.ToUpper(id2), id1 + "/x"} {
		_, err := s.Stage(api, 1, id, nil)
		assert.Error(t, err, id)
	}
	commit(t, s, Key{strings.Repeat("n", 63), "0a.b-c.9"}, "x")
	for _, name := range []string{strings.Repeat("a", 255), ".hidden", "a..b", "a/..b"} {
		_, err := s.Commit(api, volume("v", File{Path: name}))
		assert.NoError(t, err, name)
	}
}

func TestStateIsComparedAndSet(t *testing.T) {
	k := durable.NewDisk()
	s := openOn(t, k)
	_, err := s.SetState(api, State{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	commit(t, s, api, "one")
	first, err := s.SetState(api, State{Failures: 1})
	require.NoError(t, err)
	assert.Equal(t, uint64(1), first.Number)
	_, err = s.SetState(api, State{Failures: 2})
	require.ErrorIs(t, err, ErrChanged)
	first.Failures = 3
	second, err := s.SetState(api, first)
	require.NoError(t, err)
	_, err = s.SetState(api, first)
	require.ErrorIs(t, err, ErrChanged)
	w, _ := openOn(t, k).Workload(api)
	assert.Equal(t, second, w.State)
	assert.Equal(t, State{Number: 2, Failures: 3}, w.State)
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	k := durable.NewDisk()
	s := openOn(t, k)
	commit(t, s, api, "one")
	d := dirOf(t, k)
	for _, name := range []string{
		"journal", "kubeconfig", "payloads/x", "activations/x", "workloads/file", "workloads/Ns/w/x",
		api.at("generations/07.json"), api.at("generations/x"), api.at("generations/0.json"), api.at("generations/1.json.bak"),
	} {
		require.NoError(t, d.Mkdir(path.Dir(name), 0o700))
		require.NoError(t, d.WriteFile(name, []byte("mine"), 0o600))
	}
	before := files(t, d)
	s = openOn(t, k)
	assert.Len(t, s.Problems(), 8, "all but journal and kubeconfig are named: %q", s.Problems())
	require.NoError(t, s.Prune(func(string) bool { return false }))
	assert.Equal(t, before, files(t, d))
	assert.Equal(t, int64(2), commit(t, s, api, "two"))
}

func TestErrorsDoNotTellSecrets(t *testing.T) {
	k := durable.NewDisk()
	s := openOn(t, k)
	var said []string
	for n := range 40 {
		i := n
		k.Fail(func(op, name string) error {
			if i--; i < 0 {
				return errors.New("broken")
			}
			return nil
		})
		if _, err := s.Commit(api, draft("hunter2")); err != nil {
			said = append(said, err.Error())
		}
	}
	require.NotEmpty(t, said)
	assert.NotContains(t, strings.Join(said, "\n"), "hunter2")
	assert.Contains(t, said[0], "commit kube-system/kube-apiserver: ")
}
