package checkpoint

import (
	"bufio"
	"debug/elf"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// restful is for how long nothing was in motion when memory is let go of.
const restful = time.Minute

// resting says that nothing is in motion in this process.
var resting atomic.Bool

// LetGo gives the system what memory this process needs no more once it has started or
// been busy, and says that it rests: the free part of the heap, and the pages of the
// program that ran then.
func LetGo() {
	debug.FreeOSMemory()
	resting.Store(true)
	Forget()
	afterCollections()
}

// Forget gives the system the pages of the program that ran, if this process rests. What
// runs next faults its own pages in again, from the page cache, in half a millisecond.
// Called after each thing that is done at rest, so that no more is resident than what one
// of them runs, instead of the sum of all.
func Forget() {
	if resting.Load() {
		_ = advise(unix.MADV_DONTNEED) // it is but larger then
	}
}

// afterCollections calls Forget after each garbage collection from now on. One begins in
// the midst of something, and ends when that has been forgotten.
var afterCollections = sync.OnceFunc(func() {
	var again func(struct{})
	again = func(struct{}) {
		Forget()
		runtime.AddCleanup(new([2]*byte), again, struct{}{}) // garbage that is no part of a larger object
	}
	again(struct{}{})
})

// advise tells the kernel what will be of the program's code and constants (madvise(2)).
func advise(what uintptr) error {
	areas, err := program()
	if err != nil {
		return err
	}
	for _, a := range areas {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, a.from, a.to-a.from, what); errno != 0 {
			return errno
		}
	}
	return nil
}

// area is a part of this process's memory.
type area struct{ from, to uintptr }

// program is where this program's code and constants are, for as long as it runs. Their
// pages are those of its file, so that nothing is lost (madvise(2), MADV_DONTNEED), unless
// the program was relocated when it was loaded: then there is none to forget.
var program = sync.OnceValues(func() ([]area, error) {
	if relocated, err := relocates("/proc/self/exe"); relocated || err != nil {
		return nil, err
	}
	name, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	var areas []area
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		// 00400000-00c9f000 r-xp 00000000 fe:00 1234    /usr/local/bin/pod-checkpointer
		fields := strings.Fields(lines.Text())
		if len(fields) != 6 || fields[5] != name || !strings.HasPrefix(fields[1], "r-") {
			continue // what it may write to is its own
		}
		var a area
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &a.from, &a.to); err != nil {
			return nil, err
		}
		areas = append(areas, a)
	}
	return areas, nil
})

// relocates tells whether addresses are written into a program while it is loaded, to
// pages that it may but read from then on (elf(5), ET_DYN and PT_GNU_RELRO): the file
// does not have what they hold.
func relocates(program string) (bool, error) {
	file, err := elf.Open(program)
	if err != nil {
		return false, err
	}
	defer file.Close()
	relro := slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_GNU_RELRO })
	return file.Type != elf.ET_EXEC || relro, nil
}
