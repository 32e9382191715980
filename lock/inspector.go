package lock

import "sync"

// An Inspector is Inspect for one who asks all the time. It remembers which locks of
// others are on files that never had a path that it was asked about: to find that out
// means to read the descriptors of their processes, which costs more than all the rest.
// It may be used by several goroutines.
type Inspector struct {
	proc string

	mu    sync.Mutex
	known map[string]acquitted // by path
}

// acquitted are the locks that have nothing to do with a file, which holds for as long
// as it is the one at its path: another one comes to have had the path only by way of
// being the one that has it.
type acquitted struct {
	file  identity
	locks map[entry]bool
}

// remembered is how many locks are kept in mind for a path, more than a host has.
const remembered = 1000

// NewInspector returns one that reads the procfs at proc, which must be as for Inspect.
func NewInspector(proc string) *Inspector {
	return &Inspector{proc: proc, known: map[string]acquitted{}}
}

// Inspect is as the function of that name.
func (i *Inspector) Inspect(path string) (State, error) {
	return inspectWith(i.proc, path, i.split)
}

func (i *Inspector) split(file identity, proc string, e entry) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	of := i.known[file.path]
	if of.locks == nil || of.file != file || len(of.locks) >= remembered {
		of = acquitted{file: file, locks: map[entry]bool{}}
		i.known[file.path] = of
	}
	if of.locks[e] {
		return false
	}
	split := file.split(proc, e)
	if !split {
		of.locks[e] = true
	}
	return split
}
