package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

// writes is every method that writes, each on a store that before made.
var writes = []struct {
	name   string
	before func(t *testing.T, s *Store)
	write  func(s *Store) error
}{
	{"first commit", nothing, func(s *Store) error { return second(s.Commit(api, draft("one"))) }},
	{"commit", two, func(s *Store) error { return second(s.Commit(api, draft("three"))) }},
	{"first state", two, func(s *Store) error { return second(s.SetState(api, State{KnownGood: 1})) }},
	{"state", withState, func(s *Store) error { return second(s.SetState(api, State{Number: 1, Failures: 1})) }},
	{"first node", nothing, func(s *Store) error { return s.SetNode(node("n")) }},
	{"node", withState, func(s *Store) error { return s.SetNode(node("m")) }},
	{"stage", two, func(s *Store) error { return second(s.Stage(api, 2, id1, nil)) }},
	{"refresh", staged, func(s *Store) error { return s.Refresh(api, 2, id1) }},
	{"labelled stage", two, func(s *Store) error { return second(labelledStore(s).Stage(api, 2, id1, nil)) }},
	{"labelled refresh", stagedLabelled, func(s *Store) error { return labelledStore(s).Refresh(api, 2, id1) }},
	{"prune", many, func(s *Store) error { return s.Prune(func(id string) bool { return id == id2 }) }},
}

func second[T any](_ T, err error) error { return err }

func nothing(*testing.T, *Store) {}

func two(t *testing.T, s *Store) {
	commit(t, s, api, "one")
	commit(t, s, api, "two")
}

func withState(t *testing.T, s *Store) {
	two(t, s)
	require.NoError(t, second(s.SetState(api, State{KnownGood: 1})))
	require.NoError(t, s.SetNode(node("n")))
}

func staged(t *testing.T, s *Store) {
	two(t, s)
	require.NoError(t, second(s.Stage(api, 1, id1, nil)))
}

const label = "system_u:object_r:container_file_t:s0"

func labelledStore(s *Store) *Store {
	s.Label(label)
	return s
}

func stagedLabelled(t *testing.T, s *Store) { staged(t, labelledStore(s)) }

func many(t *testing.T, s *Store) {
	for i := range 7 {
		commit(t, s, api, fmt.Sprint(i))
	}
	for _, id := range []string{id1, id2, id3} {
		require.NoError(t, second(s.Stage(api, 2, id, nil)))
	}
}

// sight is what a store says, without times of writing.
func sight(s *Store) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v %q\n", s.Node(), s.Problems())
	if len(s.activations) == 1 && s.Files(api, id1) != 0 {
		fmt.Fprintf(&b, "%s is of %d\n", id1, s.Files(api, id1))
	}
	for _, w := range s.Workloads() {
		fmt.Fprintf(&b, "%s %q %+v", w.Key, w.Problems, w.State)
		for _, g := range w.Generations {
			fmt.Fprintf(&b, " %d %s %v %v", g.Seq, g.Pod, g.Payloads, g.Source)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// nth lets operations from the n-th on fail: only that one, or all of them. Reading
// is no operation here: what can't be read is another matter, see damage_test.go. Nor
// is a label alone, since no write fails with it: see label_test.go.
func nth(n int, all bool, err error) func(op, name string) error {
	return func(op, _ string) error {
		if strings.HasPrefix(op, "read") || op == "label" && !all {
			return nil
		}
		n--
		if n == -1 || all && n < 0 {
			return err
		}
		return nil
	}
}

// crashes are the two extremes of what a disk may have written by itself, and some
// things between them.
func crashes() map[string]func() bool {
	kinds := map[string]func() bool{
		"nothing":    func() bool { return false },
		"everything": func() bool { return true },
	}
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 0))
		kinds[fmt.Sprint("seed ", seed)] = func() bool { return rng.IntN(2) == 0 }
	}
	return kinds
}

// whole checks what a restarted process finds: no temporary files, no problems, and
// activations that are there as a whole or not at all.
func whole(t *testing.T, k *durable.Disk) *Store {
	t.Helper()
	s := openOn(t, k)
	require.Empty(t, s.Problems())
	all := files(t, dirOf(t, k))
	for name := range all {
		require.NotContains(t, name, durable.TempPrefix)
	}
	for id, of := range s.activations {
		tree := withPrefix(all, "activations/"+id+"/")
		g, ok := s.workloads[Key{of.Namespace, of.Workload}].generation(of.Generation)
		require.True(t, ok)
		if settled, err := s.settled("activations/"+id+"/certs", g.Payloads["certs"]); err == nil && settled {
			require.Len(t, tree, 12, "a whole tree")
		}
		require.Contains(t, all["activations/"+id+"/certs/ca"], "L")
		if labels := k.Labels(); len(labels) > 0 {
			require.Empty(t, unlabelled(tree, labels))
		}
		key, crt := read(t, k, id, "certs/tls.key"), read(t, k, id, "certs/ca/tls.crt")
		require.Equal(t, strings.TrimPrefix(key, "key "), strings.TrimPrefix(crt, "crt "), "files of one generation")
	}
	for _, w := range s.Workloads() {
		require.Empty(t, w.Problems)
	}
	return s
}

// unlabelled are the names of a tree without a label, but for that of activation.json,
// which is mounted nowhere.
func unlabelled(tree []string, labels map[string]string) []string {
	return slices.DeleteFunc(tree, func(name string) bool {
		return labels["/state/"+name] == label || path.Base(name) == "activation.json"
	})
}

func TestPowerCutLeavesOldOrNew(t *testing.T) {
	for _, c := range writes {
		t.Run(c.name, func(t *testing.T) {
			for kind, keep := range crashes() {
				for n, done := 0, false; !done; n++ {
					k := durable.NewDisk()
					s := openOn(t, k)
					c.before(t, s)
					old := sight(s)
					k.Fail(nth(n, true, errors.New("power is off")))
					done = c.write(s) == nil
					k.Crash(keep)

					s = whole(t, k)
					found := sight(s)
					if err := c.write(s); !errors.Is(err, ErrChanged) {
						require.NoError(t, err, "%s, %d: a second attempt does it", kind, n)
					}
					want := sight(whole(t, k))
					switch {
					case done:
						assert.Equal(t, want, found, "%s: nil means durable", kind)
					case c.name == "prune":
						assert.True(t, strings.HasPrefix(found, want[:len(want)-1]), "%s, %d: the newest are there", kind, n)
					default:
						assert.Contains(t, []string{old, want}, found, "%s, at operation %d", kind, n)
					}
				}
			}
		})
	}
}

func TestFailureLeavesTheStoreAsItWas(t *testing.T) {
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC, syscall.EROFS} {
		for _, c := range writes {
			t.Run(fmt.Sprint(c.name, " ", cause), func(t *testing.T) {
				for n, done := 0, false; !done; n++ {
					k := durable.NewDisk()
					s := openOn(t, k)
					c.before(t, s)
					old := sight(s)
					k.Fail(nth(n, false, cause))
					err := c.write(s)
					k.Fail(nil)
					if done = err == nil; !done {
						require.ErrorIs(t, err, cause)
						if c.name != "prune" {
							require.Equal(t, old, sight(s), "%v", err)
						}
					}
					if !done {
						require.NoError(t, c.write(s), "a second attempt after %v", err)
					}
					want := sight(s)
					k.Crash()
					require.Equal(t, want, sight(whole(t, k)), "after %v", err)
				}
			})
		}
	}
}

// What a failed write may have left on disk must not matter to other writes: a record
// that was not committed, say, must not lose its payloads to Prune.
func TestFailureIsUndoneBeforeTheNextWrite(t *testing.T) {
	for _, c := range writes {
		t.Run(c.name, func(t *testing.T) {
			for kind, keep := range crashes() {
				for n, done := 0, false; !done; n++ {
					k := durable.NewDisk()
					s := openOn(t, k)
					c.before(t, s)
					k.Fail(nth(n, false, syscall.EIO))
					done = c.write(s) == nil
					k.Fail(nil)
					require.NoError(t, s.Prune(func(id string) bool { return true }))
					want := sight(s)
					k.Crash(keep)
					require.Equal(t, want, sight(whole(t, k)), "%s, operation %d", kind, n)
				}
			}
		})
	}
}

func TestFullOrReadOnlyDiskKeepsTheOldGeneration(t *testing.T) {
	full := func(op, name string) error {
		switch op {
		case "create", "mkdir", "symlink", "write":
			return syscall.ENOSPC
		}
		return nil
	}
	readOnly := func(op, name string) error {
		switch op {
		case "create", "mkdir", "symlink", "write", "rename", "remove", "chmod", "chown":
			return syscall.EROFS
		}
		return nil
	}
	for cause, fail := range map[error]func(op, name string) error{syscall.ENOSPC: full, syscall.EROFS: readOnly} {
		for _, c := range writes {
			if c.name == "prune" && errors.Is(cause, syscall.ENOSPC) {
				continue // it makes room
			}
			t.Run(fmt.Sprint(c.name, " ", cause), func(t *testing.T) {
				k := durable.NewDisk()
				s := openOn(t, k)
				c.before(t, s)
				old, before := sight(s), files(t, dirOf(t, k))
				k.Fail(fail)
				defer k.Fail(nil)
				for range 3 {
					require.ErrorIs(t, c.write(s), cause)
				}
				if c.name != "prune" {
					assert.Equal(t, old, sight(s))
				}
				assert.Equal(t, old, sight(openOn(t, k)), "it can be opened")
				assert.Equal(t, before, files(t, dirOf(t, k)), "nothing is left behind")
				k.Fail(nil)
				require.NoError(t, c.write(s), "no restart is needed")
			})
		}
	}
}

func TestReadOnlyDiskPutsTidyingOff(t *testing.T) {
	k := small(t)
	d := dirOf(t, k)
	require.NoError(t, d.WriteFile(api.at("state.json"), []byte("bad"), 0o600))
	require.NoError(t, d.WriteFile(api.at("generations/")+durable.TempPrefix+"x", []byte("left"), 0o600))
	before := files(t, d)
	k.Fail(func(op, name string) error {
		if op != "read" && op != "readdir" && op != "stat" && op != "open" {
			return syscall.EROFS
		}
		return nil
	})
	s := openOn(t, k)
	require.Len(t, s.Problems(), 1)
	assert.Contains(t, s.Problems()[0], "read-only file system")
	w, _ := s.Workload(api)
	assert.Len(t, w.Generations, 2)
	require.ErrorIs(t, second(s.SetState(api, State{})), syscall.EROFS)
	assert.Equal(t, before, files(t, d), "the bad file is not written over")
	k.Fail(nil)
	require.NoError(t, second(s.SetState(api, State{KnownGood: 1})))
	assert.Empty(t, s.Problems())
	data, err := d.ReadFile(api.at("quarantine/state.json"))
	require.NoError(t, err)
	assert.Equal(t, "bad", string(data))
	assert.Empty(t, withPrefix(files(t, d), api.at("generations/.")))
}

func TestOneBrokenDirectoryDoesNotStopOtherWrites(t *testing.T) {
	k := durable.NewDisk()
	s := openOn(t, k)
	two(t, s)
	commit(t, s, dns, "one")
	d := dirOf(t, k)
	require.NoError(t, second(s.Stage(api, 1, id1, nil)))
	require.NoError(t, d.WriteFile(dns.at("state.json"), []byte("bad"), 0o600))
	require.NoError(t, d.WriteFile("payloads/"+durable.TempPrefix+"x", nil, 0o600))
	k.Fail(func(op, name string) error {
		if strings.Contains(name, "quarantine") || strings.HasPrefix(name, "/state/activations") || strings.HasSuffix(name, "-x") {
			if op != "read" && op != "readdir" {
				return syscall.EIO
			}
		}
		return nil
	})
	s = openOn(t, k)
	require.ErrorIs(t, s.Prune(func(string) bool { return false }), syscall.EIO)
	assert.Contains(t, s.Problems()[0], "quarantine workloads/kube-system/dns.core/state.json: ")
	assert.Contains(t, s.Problems()[0], "remove temporary files: ")
	commit(t, s, api, "three")
	commit(t, s, dns, "three")
	require.NoError(t, second(s.SetState(api, State{})))
	require.ErrorIs(t, second(s.SetState(dns, State{})), syscall.EIO, "this one waits for its quarantine")
	k.Fail(nil)
	require.NoError(t, second(s.SetState(dns, State{})))
	require.NoError(t, s.Prune(func(string) bool { return false }))
	assert.Empty(t, s.Problems())
	assert.Empty(t, withPrefix(files(t, d), "activations/"))
}

func TestActivationWhoseRemovalFailedIsNotUsed(t *testing.T) {
	k := durable.NewDisk()
	s := openOn(t, k)
	two(t, s)
	require.NoError(t, second(s.Stage(api, 1, id1, nil)))
	k.Fail(func(op, name string) error {
		if op == "fsync" {
			return syscall.EIO
		}
		return nil
	})
	require.ErrorIs(t, s.Prune(func(string) bool { return false }), syscall.EIO)
	k.Fail(nil)
	require.ErrorContains(t, second(s.Stage(api, 1, id1, nil)), "is broken")
	require.NoError(t, s.Prune(func(string) bool { return false }))
	require.NoError(t, second(s.Stage(api, 1, id1, nil)))
	whole(t, k)
}

func TestPowerCutInQuarantineLosesNothing(t *testing.T) {
	for kind, keep := range crashes() {
		for n, done := 0, false; !done; n++ {
			k := small(t)
			d := dirOf(t, k)
			w, _ := openOn(t, k).Workload(api)
			payload := w.Generations[0].Payloads["certs"]
			for _, name := range []string{"node.json", api.at("state.json"), payloadDir(payload) + "/payload.json"} {
				require.NoError(t, d.WriteFile(name, []byte("bad "+name), 0o600))
			}
			k.Fail(nth(n, true, errors.New("power is off")))
			s, err := Open(d)
			require.NoError(t, err)
			done = s.tidyErr == nil
			k.Crash(keep)

			s = openOn(t, k)
			w, _ = s.Workload(api)
			assert.Equal(t, []int64{1}, seqs(w), "%s, %d", kind, n)
			assert.NotEmpty(t, w.Problems)
			assert.NotEmpty(t, s.Problems())
			assert.Equal(t, State{}, w.State)
			for _, name := range []string{
				"quarantine/node.json", api.at("quarantine/state.json"), api.at("quarantine/2.json"),
				api.at("quarantine/payload-" + payload + "/payload.json"),
			} {
				assert.NoError(t, second(d.ReadFile(name)), "%s, %d", kind, n)
			}
		}
	}
}
