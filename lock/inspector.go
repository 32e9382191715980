package lock

import "sync"

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

func (i *Inspector) look(file identity) {
	i.mu.Lock()
	defer i.mu.Unlock()
	k, ok := i.known[file.path]
	if !ok || k.file != file || len(k.apart) >= remembered {
		k = &known{file: file, apart: map[entry]bool{}}
		i.known[file.path] = k
	}
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
