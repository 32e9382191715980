package store

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

// small is a store with two generations, of which the newest is "two".
func small(t testing.TB) *durable.Disk {
	k := durable.NewDisk()
	s := openOn(t, k)
	commit(t, s, api, "one")
	commit(t, s, api, "two")
	_, err := s.SetState(api, State{KnownGood: 1})
	require.NoError(t, err)
	require.NoError(t, s.SetNode(node("n")))
	return k
}

// damaged calls test with each way in which a file may have lost or changed a byte.
func damaged(data []byte, test func(how string, data []byte)) {
	for i := range data {
		test(fmt.Sprintf("cut to %d", i), data[:i])
		for _, bit := range []int{0, 5, 7} { // 5 turns upper case to lower case
			flipped := bytes.Clone(data)
			flipped[i] ^= 1 << bit
			test(fmt.Sprintf("bit %d of byte %d", bit, i), flipped)
		}
	}
	test("one byte more", append(bytes.Clone(data), ' '))
}

// quick is a test that says how the file was damaged, and costs nothing until it fails.
type quick struct {
	*testing.T
	how string
}

func (q quick) Errorf(format string, args ...any) {
	q.T.Helper()
	q.T.Errorf(q.how+": "+format, args...)
}

func TestEveryByteOfARecordCounts(t *testing.T) {
	k := small(t)
	name := api.record(2)
	data, err := dirOf(t, k).ReadFile(name)
	require.NoError(t, err)
	damaged(data, func(how string, bad []byte) {
		q := quick{t, how}
		k := small(q)
		d := dirOf(q, k)
		require.NoError(q, d.WriteFile(name, bad, 0o600))
		s := openOn(q, k)
		w, _ := s.Workload(api)
		require.Equal(q, []int64{1}, seqs(w), "the one before serves")
		require.Len(q, w.Problems, 1)
		require.Contains(q, w.Problems[0], "generations/2.json: moved to quarantine/2.json: "+name+": ")
		aside, err := d.ReadFile(api.at("quarantine/2.json"))
		require.NoError(q, err)
		require.True(q, bytes.Equal(bad, aside), "it is kept as it was")
	})
}

func TestEveryByteOfAPayloadCounts(t *testing.T) {
	k := small(t)
	w, _ := openOn(t, k).Workload(api)
	payload := w.Generations[0].Payloads["certs"]
	name := payloadDir(payload) + "/payload.json"
	data, err := dirOf(t, k).ReadFile(name)
	require.NoError(t, err)
	damaged(data, func(how string, bad []byte) {
		q := quick{t, how}
		k := small(q)
		d := dirOf(q, k)
		require.NoError(q, d.WriteFile(name, bad, 0o600))
		w, _ := openOn(q, k).Workload(api)
		require.Equal(q, []int64{1}, seqs(w), "the one before serves")
		require.Len(q, w.Problems, 1)
		aside, err := d.ReadFile(api.at("quarantine/payload-" + payload + "/payload.json"))
		require.NoError(q, err)
		require.True(q, bytes.Equal(bad, aside), "it is kept as it was")
	})
}

func TestEveryByteOfAStateCounts(t *testing.T) {
	k := small(t)
	name := api.at("state.json")
	data, err := dirOf(t, k).ReadFile(name)
	require.NoError(t, err)
	damaged(data, func(how string, bad []byte) {
		q := quick{t, how}
		k := small(q)
		d := dirOf(q, k)
		require.NoError(q, d.WriteFile(name, bad, 0o600))
		s := openOn(q, k)
		w, _ := s.Workload(api)
		require.Equal(q, State{}, w.State)
		require.Equal(q, []int64{2, 1}, seqs(w))
		require.Len(q, w.Problems, 1)
		aside, err := d.ReadFile(api.at("quarantine/state.json"))
		require.NoError(q, err)
		require.True(q, bytes.Equal(bad, aside), "it is kept as it was")
	})
}

func TestEveryByteOfANodeCounts(t *testing.T) {
	k := small(t)
	data, err := dirOf(t, k).ReadFile("node.json")
	require.NoError(t, err)
	damaged(data, func(how string, bad []byte) {
		q := quick{t, how}
		k := small(q)
		d := dirOf(q, k)
		require.NoError(q, d.WriteFile("node.json", bad, 0o600))
		s := openOn(q, k)
		require.Equal(q, Node{}, s.Node())
		require.Len(q, s.Problems(), 1)
		require.Contains(q, s.Problems()[0], "node.json: moved to quarantine/node.json, the node's identity is lost")
		aside, err := d.ReadFile("quarantine/node.json")
		require.NoError(q, err)
		require.True(q, bytes.Equal(bad, aside), "it is kept as it was")
	})
}

func TestRecordOfAnotherPlaceIsBad(t *testing.T) {
	for _, from := range []string{api.record(1), api.at("state.json"), "node.json", dns.record(2)} {
		k := small(t)
		s := openOn(t, k)
		commit(t, s, dns, "other")
		commit(t, s, dns, "two")
		d := dirOf(t, k)
		data, err := d.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, d.WriteFile(api.record(2), data, 0o600))
		w, _ := openOn(t, k).Workload(api)
		assert.Equal(t, []int64{1}, seqs(w), from)
		assert.Len(t, w.Problems, 1)
	}
}

func TestQuarantineIsKeptAndNamed(t *testing.T) {
	k := small(t)
	d := dirOf(t, k)
	for range 3 {
		for _, name := range []string{"node.json", api.at("state.json")} {
			require.NoError(t, d.WriteFile(name, []byte("bad"), 0o600))
		}
		s := openOn(t, k)
		require.NoError(t, s.SetNode(node("n")))
		_, err := s.SetState(api, State{KnownGood: 1})
		require.NoError(t, err)
		require.NoError(t, s.Prune(func(string) bool { return false }))
	}
	s := openOn(t, k)
	w, _ := s.Workload(api)
	assert.Equal(t, []string{
		"quarantine/state.json: it was found bad; remove it when it was looked at",
		"quarantine/state.json.2: it was found bad; remove it when it was looked at",
		"quarantine/state.json.3: it was found bad; remove it when it was looked at",
	}, w.Problems)
	assert.Len(t, s.Problems(), 3)
	for _, name := range []string{"quarantine/node.json", "quarantine/node.json.3", api.at("quarantine/state.json.2")} {
		data, err := d.ReadFile(name)
		require.NoError(t, err)
		assert.Equal(t, "bad", string(data))
	}
}

func TestNumbersAreNeverUsedTwice(t *testing.T) {
	k := small(t)
	d := dirOf(t, k)
	for _, seq := range []int64{1, 2} {
		require.NoError(t, d.WriteFile(api.record(seq), nil, 0o600))
	}
	s := openOn(t, k)
	w, _ := s.Workload(api)
	assert.Empty(t, w.Generations)
	assert.Equal(t, State{Number: 1, KnownGood: 1}, w.State)
	s = openOn(t, k)
	assert.Equal(t, int64(3), commit(t, s, api, "two"), "what the API says is committed again")
	w, _ = openOn(t, k).Workload(api)
	assert.Equal(t, []int64{3}, seqs(w))
}

func TestLostStateKeepsAllGenerations(t *testing.T) {
	k := durable.NewDisk()
	s := openOn(t, k)
	for i := range 8 {
		commit(t, s, api, fmt.Sprint(i))
	}
	_, err := s.SetState(api, State{KnownGood: 1})
	require.NoError(t, err)
	require.NoError(t, dirOf(t, k).WriteFile(api.at("state.json"), []byte("x"), 0o600))
	prune := func(s *Store) []int64 {
		require.NoError(t, s.Prune(func(string) bool { return false }))
		w, _ := s.Workload(api)
		return seqs(w)
	}
	assert.Len(t, prune(openOn(t, k)), 8)
	s = openOn(t, k)
	assert.Len(t, prune(s), 8, "also after a restart")
	st, err := s.SetState(api, State{Failures: 1})
	require.NoError(t, err)
	assert.Len(t, prune(s), 8, "also after a state that has no known-good")
	assert.Len(t, prune(openOn(t, k)), 8)
	st.KnownGood = 2
	_, err = s.SetState(api, st)
	require.NoError(t, err)
	assert.Equal(t, []int64{8, 7, 6, 5, 4, 2}, prune(s))
}

func TestPayloadOfSeveralIsLostOnce(t *testing.T) {
	k := small(t)
	s := openOn(t, k)
	commit(t, s, dns, "two")
	w, _ := s.Workload(dns)
	payload := w.Generations[0].Payloads["certs"]
	require.NoError(t, dirOf(t, k).WriteFile(payloadDir(payload)+"/payload.json", []byte("x"), 0o600))

	_, err := s.Stage(api, 2, id1, nil)
	require.ErrorContains(t, err, "its checksum is wrong", "it is noticed while the store is open, too")
	for _, s := range []*Store{s, openOn(t, k)} {
		w, _ := s.Workload(api)
		assert.Equal(t, []int64{1}, seqs(w))
		w, _ = s.Workload(dns)
		assert.Empty(t, w.Generations)
		assert.NotEmpty(t, w.Problems)
	}
	_, err = s.Stage(api, 1, id1, nil)
	require.NoError(t, err)
	assert.Equal(t, int64(3), commit(t, s, api, "two"), "it is written again")
	_, err = s.Stage(api, 3, id2, nil)
	require.NoError(t, err)
	data, err := dirOf(t, k).ReadFile(dns.at("quarantine/payload-" + payload + "/payload.json"))
	require.NoError(t, err)
	assert.Equal(t, "x", string(data))
}

func TestMissingPayloadIsBad(t *testing.T) {
	k := small(t)
	w, _ := openOn(t, k).Workload(api)
	require.NoError(t, dirOf(t, k).RemoveAll(payloadDir(w.Generations[0].Payloads["certs"])))
	s := openOn(t, k)
	w, _ = s.Workload(api)
	assert.Equal(t, []int64{1}, seqs(w))
	assert.Equal(t, int64(3), commit(t, s, api, "two"))
}

func TestLeftPayloadIsNotBelieved(t *testing.T) {
	k := small(t)
	w, _ := openOn(t, k).Workload(api)
	name := payloadDir(w.Generations[0].Payloads["certs"]) + "/payload.json"
	d := dirOf(t, k)
	require.NoError(t, d.Remove(api.record(2)), "as if a power cut had come before the record")
	require.NoError(t, d.WriteFile(name, []byte("rotten"), 0o600))
	s := openOn(t, k)
	assert.Equal(t, int64(2), commit(t, s, api, "two"))
	w, _ = openOn(t, k).Workload(api)
	assert.Equal(t, []int64{2, 1}, seqs(w))
}

func TestUnreadableNowIsNotBad(t *testing.T) {
	for _, name := range []string{"node.json", api.at("state.json"), api.record(2), "payload.json", "/generations"} {
		k := small(t)
		before := files(t, dirOf(t, k))
		k.Fail(func(op, at string) error {
			if strings.HasPrefix(op, "read") && strings.HasSuffix(at, name) {
				return syscall.EMFILE
			}
			return nil
		})
		_, err := Open(dirOf(t, k))
		require.ErrorIs(t, err, syscall.EMFILE, name)
		require.ErrorContains(t, err, path.Base(name))
		k.Fail(nil)
		assert.Equal(t, before, files(t, dirOf(t, k)))
	}
}

// failsToRead makes every read of a file an I/O error.
func failsToRead(k *durable.Disk, name string) {
	k.Fail(func(op, at string) error {
		if op == "read" && strings.HasSuffix(at, name) {
			return syscall.EIO
		}
		return nil
	})
}

func TestAnIOErrorIsNoBadFile(t *testing.T) {
	k := small(t)
	before := files(t, dirOf(t, k))
	failsToRead(k, api.record(2))
	_, err := Open(dirOf(t, k))
	require.ErrorIs(t, err, syscall.EIO)
	k.Fail(nil)
	require.Equal(t, before, files(t, dirOf(t, k)), "nothing was moved")
	w, _ := openOn(t, k).Workload(api)
	require.Equal(t, []int64{2, 1}, seqs(w))
}

func TestAnIOErrorThatStaysIsABadFile(t *testing.T) {
	k := small(t)
	failsToRead(k, api.record(2))
	s, err := OpenGivingUp(dirOf(t, k))
	require.NoError(t, err)
	w, _ := s.Workload(api)
	require.Equal(t, []int64{1}, seqs(w), "the one before it serves")
}

func TestAPayloadThatCantBeStagedIsTriedThreeTimes(t *testing.T) {
	k := small(t)
	s := openOn(t, k)
	w, _ := s.Workload(api)
	failsToRead(k, "payload.json")
	for n := 1; n <= maxEIO; n++ {
		require.Equal(t, []int64{2, 1}, seqs(w), "try %d", n)
		_, err := s.Stage(api, 2, id1, nil)
		require.ErrorIs(t, err, syscall.EIO)
		w, _ = s.Workload(api)
	}
	require.NotContains(t, seqs(w), int64(2), "then another generation gets its turn")
}

func TestNewerFormatIsLeftAsItIs(t *testing.T) {
	for name, kind := range map[string]string{
		"node.json": "node", api.at("state.json"): "state", api.record(2): "generation",
		"activations/" + id1 + "/activation.json": "activation",
	} {
		k := small(t)
		s := openOn(t, k)
		_, err := s.Stage(api, 1, id1, nil)
		require.NoError(t, err)
		d := dirOf(t, k)
		require.NoError(t, d.WriteFile(name, bytesOf(Format+1, kind, []byte(`{"new":true}`)), 0o600))
		require.NoError(t, d.WriteFile(durable.TempPrefix+"x", nil, 0o600))
		require.NoError(t, d.WriteFile(api.record(1), []byte("bad"), 0o600))
		before := files(t, d)
		k.Fail(func(op, name string) error {
			if op != "read" && op != "readdir" {
				return errors.New("nothing is to be written")
			}
			return nil
		})
		_, err = Open(d)
		require.ErrorIs(t, err, ErrNewerFormat)
		assert.EqualError(t, err, "open store: "+name+": it has format 2 and this daemon knows formats up to 1: "+
			"run the version that wrote it, or export there and import here: newer format")
		k.Fail(nil)
		assert.Equal(t, before, files(t, d))
	}
}
