//go:build e2e

package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
	"golang.org/x/sys/unix"
)

const (
	beat     = 10 * time.Millisecond
	lockPath = lockDir + "/kube-apiserver.lock"
	apiPort  = 6443
)

// exclusion watches that never two processes hold the lock, on whatever file
// that had its name, and that never two sockets listen on the API server's port.
// It reads the kernel's tables itself, so that no fault of ours can hide a second.
type exclusion struct {
	node  *nodeRoot
	begun time.Time
	stop  chan struct{}
	done  sync.WaitGroup

	// Of the goroutine until it is done.
	samples, held, listened int
	broken                  []string
	root                    string          // the node for which ours holds
	ours                    map[uint64]bool // by inode: is it a file of the lock
}

func watchExclusion(l *lab.Lab) *exclusion {
	e := &exclusion{node: &nodeRoot{lab: l}, begun: time.Now(), stop: make(chan struct{})}
	e.done.Go(func() {
		// A machine that is busy with the node must not blind it. The thread is
		// never unlocked, so that it ends with this.
		runtime.LockOSThread()
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -15) // or it sees less, which the verdict tells
		for tick := time.NewTicker(beat); ; {
			select {
			case <-e.stop:
				tick.Stop()
				return
			case <-tick.C:
				e.sample()
			}
		}
	})
	return e
}

// verdict ends the watch.
func (e *exclusion) verdict() error {
	close(e.stop)
	e.done.Wait()
	elapsed := time.Since(e.begun)
	fmt.Printf("never two: %d samples in %s, the lock was held in %d, the port listened on in %d\n",
		e.samples, elapsed.Round(time.Second), e.held, e.listened)
	return e.judge(elapsed)
}

// judge says what was broken. Half of the beats may be lost on a busy machine.
// With less than that, or where hardly anybody was ever seen, it proves nothing.
func (e *exclusion) judge(elapsed time.Duration) error {
	var errs []error
	for _, what := range e.broken {
		errs = append(errs, errors.New(what))
	}
	if least := int(elapsed / beat / 2); e.samples < least {
		errs = append(errs, fmt.Errorf("only %d samples, of at least %d", e.samples, least))
	}
	if least := max(1, e.samples/10); e.held < least || e.listened < least {
		errs = append(errs, fmt.Errorf("a holder in %d samples and a listener in %d, of at least %d", e.held, e.listened, least))
	}
	return errors.Join(errs...)
}

func (e *exclusion) sample() {
	e.samples++
	root := e.node.path()
	if root == "" {
		return // no power: nobody runs
	}
	if root != e.root {
		e.root, e.ours = root, map[uint64]bool{}
	}
	holders := e.settled(e.holders)
	listeners := e.settled(e.listeners)
	e.held += min(1, len(holders))
	e.listened += min(1, len(listeners))
	e.complain("processes hold the lock", holders)
	e.complain("sockets listen on the port", listeners)
}

func (e *exclusion) complain(what string, seen []string) {
	if len(seen) > 1 && len(e.broken) < 10 {
		e.broken = append(e.broken, fmt.Sprintf("%s: %d %s: %s", time.Now().Format("15:04:05.000"), len(seen), what, strings.Join(seen, ", ")))
	}
}

// settled are those that two readings show, where one shows more than one. The
// kernel hands out its tables a page at a time, so that one reading may show the
// same line twice, or a holder and, further down, its heir.
func (e *exclusion) settled(read func() []string) []string {
	first := read()
	if len(first) < 2 {
		return first
	}
	second := read()
	slices.Sort(first)
	return slices.DeleteFunc(slices.Compact(first), func(one string) bool { return !slices.Contains(second, one) })
}

// holders are the lines of the lock table that tell of a holder of the lock, see
// lock_get_status of fs/locks.c: "1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF".
func (e *exclusion) holders() []string {
	var stat unix.Stat_t
	if unix.Stat(filepath.Join(e.root, "root", filepath.Dir(lockPath)), &stat) != nil {
		return nil // not made yet
	}
	device := fmt.Sprintf("%02x:%02x", unix.Major(stat.Dev), unix.Minor(stat.Dev))
	if unix.Stat(filepath.Join(e.root, "root", lockPath), &stat) == nil {
		e.ours[stat.Ino] = true // and stays so, when another file gets the name
	}
	table, err := os.ReadFile("/proc/locks")
	if err != nil {
		return nil
	}
	var out []string
	for text := range strings.Lines(string(table)) {
		words := strings.Fields(text)
		if len(words) < 6 || words[1] != "FLOCK" { // the second word of a waiter is ->
			continue
		}
		number, ok := strings.CutPrefix(words[5], device+":")
		inode, err := strconv.ParseUint(number, 10, 64)
		if ok && err == nil && e.isOurs(inode, words[4]) {
			out = append(out, "process "+words[4]+" on inode "+number)
		}
	}
	return out
}

// isOurs tells whether the file that the process has locked ever had the name of
// the lock; containers may see it in another place.
func (e *exclusion) isOurs(inode uint64, pid string) bool {
	if is, known := e.ours[inode]; known {
		return is
	}
	links, err := filepath.Glob("/proc/" + pid + "/fd/*")
	if err != nil || len(links) == 0 {
		return false // it has ended
	}
	for _, link := range links {
		var stat unix.Stat_t
		target, err := os.Readlink(link)
		if err == nil && filepath.Base(strings.TrimSuffix(target, " (deleted)")) == filepath.Base(lockPath) &&
			unix.Stat(link, &stat) == nil && stat.Ino == inode {
			e.ours[inode] = true
			return true
		}
	}
	e.ours[inode] = false
	return false
}

// listeners are the sockets of the node that listen on the port, by inode.
func (e *exclusion) listeners() []string {
	return append(e.listening("tcp"), e.listening("tcp6")...)
}

// listening reads a table as proc_net_tcp of the kernel's documentation has it:
// "0: 00000000:192B 00000000:0000 0A … INODE …".
func (e *exclusion) listening(table string) (out []string) {
	file, err := os.Open(filepath.Join(e.root, "net", table))
	if err != nil {
		return nil // the power was cut
	}
	defer file.Close()
	// The listening ones stand first (tcp_get_idx of net/ipv4/tcp_ipv4.c). To find
	// the others would take the kernel most of a beat, so it is asked for no more
	// than a line at a time.
	lines := bufio.NewReaderSize(file, 64)
	for head := true; ; head = false {
		text, err := lines.ReadString('\n')
		words := strings.Fields(text)
		switch {
		case err != nil || len(words) < 10 || !head && words[3] != "0A":
			return out
		case !head && strings.HasSuffix(words[1], fmt.Sprintf(":%04X", apiPort)):
			out = append(out, "socket "+words[9]+" in "+table)
		}
	}
}
