package lock

import (
	"slices"
	"sync"
)

// An Inspector is Inspect for one who asks all the time. It remembers which locks of
// others are on files that never had a path that it was asked about: to find that out
// means to read the descriptors of their processes, which costs more than all the rest.
// It may be used by several goroutines.
type Inspector struct {
	proc string

	mu    sync.Mutex
	known map[string]*known // by path
}

// known is what was found out about a file.
type known struct {
	file identity
	last []entry // those that held it or waited when it or the table was looked at last

	// apart are the locks that have nothing to do with it, which holds for as long as it
	// is the one at its path: another file comes to have had the path only by way of
	// being the one that has it.
	apart map[entry]bool
}

// remembered is how many locks are kept in mind for a path, more than a host has.
const remembered = 1000

// NewInspector returns one that reads the procfs at proc, which must be as for Inspect.
func NewInspector(proc string) *Inspector {
	return &Inspector{proc: proc, known: map[string]*known{}}
}

// Inspect is as the function of that name.
func (i *Inspector) Inspect(path string) (State, error) {
	return inspectFor(i, i.proc, path)
}

// Moved tells whether anybody has come to hold or to wait for a file, or has ceased to,
// since it was inspected last or Moved told of it: each change is told once, and a path
// that nobody asks for any more is silent. It reads the table and nothing else, a small
// part of what Inspect costs.
func (i *Inspector) Moved() (bool, error) {
	table, _, err := readTable(i.proc)
	if err != nil {
		return false, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	moved := false
	for _, k := range i.known {
		now := k.file.among(table)
		moved = moved || !slices.Equal(now, k.last)
		k.last = now
	}
	return moved, nil
}

// among are the locks that may be on this file: by inode, as devices can lie.
func (id identity) among(table []entry) []entry {
	var locks []entry
	for _, e := range table {
		if id.exists && e.inode == id.inode {
			locks = append(locks, e)
		}
	}
	return locks
}

func (i *Inspector) look(file identity, table []entry) {
	i.mu.Lock()
	defer i.mu.Unlock()
	k, ok := i.known[file.path]
	if !ok || k.file != file || len(k.apart) >= remembered {
		k = &known{file: file, apart: map[entry]bool{}}
		i.known[file.path] = k
	}
	k.last = file.among(table)
}

func (i *Inspector) split(file identity, proc string, e entry) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	k := i.known[file.path]
	if k.file == file && k.apart[e] {
		return false
	}
	split := file.split(proc, e)
	if !split && k.file == file { // which another goroutine may have looked at since
		k.apart[e] = true
	}
	return split
}
