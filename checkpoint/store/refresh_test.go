package store

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

// read is a file of an activation, as its checkpoint reads it.
func read(t testing.TB, k *durable.Disk, id, name string) string {
	t.Helper()
	data, err := dirOf(t, k).ReadFile("activations/" + id + "/" + name)
	require.NoError(t, err)
	return string(data)
}

// volumes is a draft whose volumes have these files, each by its path.
func volumes(t testing.TB, s *Store, contents map[string]map[string]string) int64 {
	t.Helper()
	d := draft("pod")
	d.Volumes = nil
	for volume, files := range contents {
		v := Volume{Name: volume}
		for name, data := range files {
			v.Files = append(v.Files, File{Path: name, Data: []byte(data), Mode: 0o440, UID: 1, GID: 2})
		}
		d.Volumes = append(d.Volumes, v)
	}
	seq, err := s.Commit(api, d)
	require.NoError(t, err)
	return seq
}

// Two generations that differ in one volume by bytes, in one by names and directories.
var (
	before = map[string]map[string]string{
		"bytes": {"a": "1", "b": "1"},
		"names": {"stays": "1", "goes": "1", "dir/x": "1", "was/file": "1"},
		"same":  {"a": "1"},
		"empty": {},
	}
	after = map[string]map[string]string{
		"bytes": {"a": "2", "b": "2"},
		"names": {"stays": "2", "comes": "2", "dir/y": "2", "was": "2", "new/z": "2"},
		"same":  {"a": "1"},
		"empty": {},
	}
)

// seen is what the checkpoint can read of a volume, by path.
func seen(t testing.TB, k *durable.Disk, volume string) map[string]string {
	t.Helper()
	d := dirOf(t, k)
	found := map[string]string{}
	var walk func(name, as string)
	walk = func(name, as string) {
		info, err := d.Stat(name)
		if err != nil {
			require.ErrorIs(t, err, fs.ErrNotExist)
			return // a link that leads nowhere
		}
		if !info.IsDir() {
			data, err := d.ReadFile(name)
			require.NoError(t, err)
			found[as] = string(data)
			return
		}
		entries, err := d.ReadDir(name)
		require.NoError(t, err)
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") {
				walk(path.Join(name, e.Name()), path.Join(as, e.Name()))
			}
		}
	}
	walk("activations/"+id1+"/"+volume, "")
	return found
}

// tree is all that stands below an activation.
func tree(t testing.TB, k *durable.Disk, id string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for name, is := range files(t, dirOf(t, k)) {
		if rest, ok := strings.CutPrefix(name, "activations/"+id+"/"); ok {
			found[rest] = is
			if target, err := dirOf(t, k).Readlink(name); err == nil {
				found[rest] += " -> " + target
			}
		}
	}
	return found
}

func TestRefreshedTreeIsAsIfStaged(t *testing.T) {
	k := durable.NewDisk()
	s := openOn(t, k)
	first := volumes(t, s, before)
	second := volumes(t, s, after)
	for id, seq := range map[string]int64{id1: first, id2: second} {
		_, err := s.Stage(api, seq, id, nil)
		require.NoError(t, err)
	}
	require.Equal(t, first, s.Files(api, id1))
	require.NoError(t, s.Refresh(api, second, id1))
	require.Equal(t, second, s.Files(api, id1))
	require.Equal(t, tree(t, k, id2), tree(t, k, id1))
	require.Equal(t, second, openOn(t, k).Files(api, id1))

	_, err := s.Stage(api, second, id1, nil)
	require.NoError(t, err, "it is of this generation now")
	_, err = s.Stage(api, first, id1, nil)
	require.ErrorContains(t, err, "is of generation 2")

	require.NoError(t, s.Refresh(api, first, id1), "back")
	_, err = s.Stage(api, first, id3, nil)
	require.NoError(t, err)
	require.Equal(t, tree(t, k, id3), tree(t, k, id1))
}

// Whatever is read at any moment is the whole volume of one generation; with the power
// cut there, the next Refresh goes on, be it to that generation, a third, or back.
func TestRefreshTurnsEachVolumeInOneInstant(t *testing.T) {
	third := map[string]map[string]string{"bytes": {"c": "3"}, "names": before["names"], "same": {"a": "3"}, "empty": {"e": "3"}}
	all := []map[string]map[string]string{before, after, third}
	kinds := crashes()
	for i, kind := range slices.Sorted(maps.Keys(kinds)) {
		for n, done := 0, false; !done; n++ {
			k := durable.NewDisk()
			s := openOn(t, k)
			var seqs []int64
			for _, contents := range all {
				seqs = append(seqs, volumes(t, s, contents))
			}
			require.NoError(t, second(s.Stage(api, seqs[0], id1, nil)))
			k.Fail(nth(n, true, fs.ErrInvalid))
			done = s.Refresh(api, seqs[1], id1) == nil
			k.Fail(nil)
			for _, when := range []string{"running", "after the power cut"} {
				for volume := range before {
					is := seen(t, k, volume)
					require.True(t, maps.Equal(is, before[volume]) || maps.Equal(is, after[volume]), "%s, %d, %s: %s has %v", kind, n, when, volume, is)
				}
				k.Crash(kinds[kind])
			}

			s = openOn(t, k)
			require.Empty(t, s.Problems())
			if done {
				require.Equal(t, seqs[1], s.Files(api, id1), "nil means durable")
			}
			if s.Files(api, id1) == seqs[1] { // the record is the last
				require.Equal(t, after["bytes"], seen(t, k, "bytes"))
				require.Equal(t, after["names"], seen(t, k, "names"))
			}
			goOn := seqs[(n+i)%3]
			if s.Files(api, id1) == goOn {
				continue
			}
			require.NoError(t, s.Refresh(api, goOn, id1))
			require.NoError(t, second(s.Stage(api, goOn, id2, nil)))
			require.Equal(t, tree(t, k, id2), tree(t, k, id1), "%s, %d", kind, n)
		}
	}
}

// A process that was killed between a turn and its fsync leaves what only seems to be
// on disk. The next one may not build upon it, wherever the power is cut then.
func TestRefreshBelievesNoTurnThatMayNotBeDurable(t *testing.T) {
	old, new := map[string]map[string]string{"v": {"a": "1"}}, map[string]map[string]string{"v": {"a": "2"}}
	for kind, keep := range crashes() {
		if kind == "everything" || kind > "seed 1" {
			continue // nothing is to be seen where nothing is lost, and two of the others are enough
		}
		for n, done := 0, false; !done; n++ {
			for m, again := 0, false; !again; m++ {
				k := durable.NewDisk()
				s := openOn(t, k)
				first, next := volumes(t, s, old), volumes(t, s, new)
				require.NoError(t, second(s.Stage(api, first, id1, nil)))
				k.Fail(nth(n, true, fs.ErrInvalid))
				done = s.Refresh(api, next, id1) == nil
				k.Fail(nil)
				s = openOn(t, k) // with no power cut
				k.Fail(nth(m, true, fs.ErrInvalid))
				again = s.Refresh(api, next, id1) == nil
				k.Crash(keep)
				is := seen(t, k, "v")
				require.True(t, maps.Equal(is, new["v"]) || !again && maps.Equal(is, old["v"]), "%s, killed at %d, power cut at %d: it has %v", kind, n, m, is)
			}
		}
	}
}

func TestRefreshTouchesNothingThatIsTheSame(t *testing.T) {
	k := durable.NewDisk()
	s := openOn(t, k)
	first, next := volumes(t, s, before), volumes(t, s, after)
	require.NoError(t, second(s.Stage(api, first, id1, nil)))
	var touched []string
	k.Fail(func(op, name string) error {
		if !strings.HasPrefix(op, "read") && op != "stat" {
			touched = append(touched, op+" "+name)
		}
		return nil
	})
	require.NoError(t, s.Refresh(api, first, id1))
	require.Empty(t, touched, "it has them")
	require.NoError(t, s.Refresh(api, next, id1))
	for _, at := range touched {
		require.NotContains(t, at, "/same", "a program that watches it would read it again")
		require.NotContains(t, at, "/empty")
	}
}

func TestRefreshRefuses(t *testing.T) {
	k := durable.NewDisk()
	s := openOn(t, k)
	first, next := volumes(t, s, before), volumes(t, s, after)
	other := volumes(t, s, map[string]map[string]string{"bytes": {}})
	commit(t, s, dns, "one")
	require.NoError(t, second(s.Stage(api, first, id1, nil)))
	was := tree(t, k, id1)
	require.ErrorIs(t, s.Refresh(api, next, id2), fs.ErrNotExist, "no such activation")
	require.ErrorIs(t, s.Refresh(dns, 1, id1), fs.ErrNotExist, "it is another workload's")
	require.ErrorIs(t, s.Refresh(api, 9, id1), fs.ErrNotExist, "no such generation")
	require.ErrorContains(t, s.Refresh(api, other, id1), `it has the volumes ["bytes" "empty" "names" "same"], not ["bytes"]`)

	w, _ := s.Workload(api)
	bad := payloadDir(w.Generations[1].Payloads["names"]) + "/payload.json"
	require.NoError(t, dirOf(t, k).WriteFile(bad, []byte("bad"), 0o600))
	require.ErrorContains(t, s.Refresh(api, next, id1), "checksum")
	w, _ = s.Workload(api)
	require.Equal(t, []int64{3, 1}, seqs(w), "it is set aside")
	require.Equal(t, was, tree(t, k, id1), "and no volume was changed for it")
	require.Equal(t, first, s.Files(api, id1))

	require.NoError(t, dirOf(t, k).WriteFile("activations/"+id1+"/activation.json", []byte("x"), 0o600))
	s = openOn(t, k)
	require.Zero(t, s.Files(api, id1), "nobody can tell")
	require.ErrorIs(t, s.Refresh(api, first, id1), fs.ErrNotExist)
}

// The generation whose files are mounted stays, however many come after it.
func TestPruneKeepsWhatWasRefreshed(t *testing.T) {
	k := durable.NewDisk()
	s := openOn(t, k)
	for _, text := range []string{"1", "2", "3"} {
		commit(t, s, api, text)
	}
	require.NoError(t, second(s.Stage(api, 1, id1, nil)))
	require.NoError(t, s.Refresh(api, 2, id1))
	for _, text := range []string{"4", "5", "6", "7", "8"} {
		commit(t, s, api, text)
	}
	require.NoError(t, s.Prune(func(string) bool { return true }))
	w, _ := s.Workload(api)
	require.Equal(t, []int64{8, 7, 6, 5, 4, 2}, seqs(w))
	require.NoError(t, s.Refresh(api, 8, id1))
	require.NoError(t, s.Prune(func(string) bool { return true }))
	w, _ = s.Workload(api)
	require.Equal(t, []int64{8, 7, 6, 5, 4}, seqs(w))
}
