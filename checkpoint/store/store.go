package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

// Store is the store of one node, open. All of its methods belong to one
// goroutine, the pass, and none of them waits for anything but the disk. After an
// error of a method that writes, what was asked for is not there as far as the
// store knows, and the method may be called again.
type Store struct {
	dir  *durable.Dir
	node Node

	workloads map[Key]*workload
	// payloads are those on disk. True are those that were found whole or that this
	// process wrote; the others were left by a crash, and no generation names them.
	payloads map[string]bool
	// activations are those on disk. The zero stage is one that can't be read.
	activations map[string]stage

	problems []string        // of no workload
	aside    map[string]bool // names in quarantine of no workload

	eio    map[string]int // how often each file could not be read
	giveUp bool           // what can't be read once is bad

	label      string           // of what containers read; "": none
	unlabelled map[string]error // by activation, of a path that has no label

	tasks   []task // what is still to be done, in this order
	tidyErr error  // why the last attempt failed
}

// stage is the body of activation.json.
type stage struct {
	Namespace  string `json:"namespace"`
	Workload   string `json:"workload"`
	Generation int64  `json:"generation"`
}

// removed stands for an activation whose removal failed.
var removed = stage{Generation: -1}

func (s stage) of(k Key, seq int64) bool { return s == stage{k.Namespace, k.Workload, seq} }

// Open reads the store at dir, which it may find empty, and checks every byte of
// what it tells. Temporary files of a crash are removed, and bad files are moved
// into quarantine; where that fails, as on a disk that is full or read-only, later
// writes try again, and [Store.Problems] says so. A file that can't be read just
// now is an error, and so is a newer format, [ErrNewerFormat]; then nothing was
// written. Open takes no lock: see [LockDir].
//
// What can't be read because of an I/O error is an error too, since it may be
// there the next time: a caller that has tried for long enough goes on with
// [OpenGivingUp].
func Open(dir *durable.Dir) (*Store, error) { return open(dir, false) }

// OpenGivingUp is Open for a disk whose I/O errors stay: the files that give them
// are taken for bad, and what is before them serves.
func OpenGivingUp(dir *durable.Dir) (*Store, error) { return open(dir, true) }

func open(dir *durable.Dir, giveUp bool) (*Store, error) {
	s := &Store{
		dir:         dir,
		giveUp:      giveUp,
		eio:         map[string]int{},
		workloads:   map[Key]*workload{},
		payloads:    map[string]bool{},
		activations: map[string]stage{},
		aside:       map[string]bool{},
		unlabelled:  map[string]error{},
	}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s.giveUp = false  // a payload that is read again may be tried again
	_ = s.tidy(every) // told by Problems; the writes try again
	return s, nil
}

// Workloads returns all workloads by name. It reads no disk.
func (s *Store) Workloads() []Workload {
	var all []Workload
	for _, k := range s.keys() {
		all = append(all, s.workloads[k].snapshot())
	}
	return all
}

// Workload returns one. It reads no disk.
func (s *Store) Workload(k Key) (Workload, bool) {
	w, ok := s.workloads[k]
	if !ok {
		return Workload{}, false
	}
	return w.snapshot(), true
}

// Node returns the identity that was stored last. It reads no disk.
func (s *Store) Node() Node { return s.node }

// Problems returns what is wrong in the store but with no one workload.
func (s *Store) Problems() []string {
	all := slices.Clone(s.problems)
	if s.tidyErr != nil {
		all = append(all, s.tidyErr.Error())
	}
	for _, id := range slices.Sorted(maps.Keys(s.unlabelled)) {
		all = append(all, fmt.Sprintf("SELinuxLabel: activations/%s: %v: containers may be kept from this file", id, s.unlabelled[id]))
	}
	return all
}

// keys returns the keys of all workloads, sorted.
func (s *Store) keys() []Key {
	return slices.SortedFunc(maps.Keys(s.workloads), func(a, b Key) int {
		return strings.Compare(a.String(), b.String())
	})
}

// at returns the path of a file of a workload.
func (k Key) at(name string) string { return "workloads/" + k.String() + "/" + name }

func (k Key) record(seq int64) string { return k.at(fmt.Sprintf("generations/%d.json", seq)) }

func payloadDir(digest string) string { return "payloads/" + digest }
