package lock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Process is one that holds or waits.
type Process struct {
	PID         int    // in the pid namespace of the procfs that was read
	StartTime   uint64 // field 22 of /proc/PID/stat, so that a reused PID is not mistaken
	ContainerID string // "" outside of a container, and of one whose cgroup is the root of the reader's namespace
	PodUID      string // as the API has it; "" outside of a pod
}

// errGone says that there is no such process any more.
var errGone = errors.New("no such process")

// readProcess returns errGone where the process has ended.
func readProcess(proc string, pid int) (Process, error) {
	p := Process{PID: pid}
	dir := filepath.Join(proc, strconv.Itoa(pid))
	cgroup, _, err := readPieces(filepath.Join(dir, "cgroup"))
	if err != nil {
		return p, gone(err)
	}
	stat, _, err := readPieces(filepath.Join(dir, "stat"))
	if err != nil {
		return p, gone(err)
	}
	if p.StartTime, err = parseStart(stat); err != nil {
		return p, fmt.Errorf("read process %d: %w", pid, err)
	}
	p.ContainerID, p.PodUID = parseCgroup(string(cgroup))
	if atRoot(string(cgroup)) {
		p.PodUID = podByMounts(dir)
	}
	return p, nil
}

// parseStart finds field 22 by counting from the end of field 2, which is the
// name in parentheses and may contain anything (proc_pid_stat(5)).
func parseStart(stat []byte) (uint64, error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0, errors.New("unreadable stat")
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}

// gone turns the error of a procfs into errGone where that is what it says.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return errGone
	}
	return err
}

// A descriptor is one open file of a process.
type descriptor struct {
	link   string // path of its link in the procfs
	info   string // path of its fdinfo
	device uint64
	inode  uint64
}

// descriptors calls visit for the open files of a process, lowest first, until
// it returns false. A lock's descriptor is among the first, so that the many of
// a server are not looked at.
func descriptors(proc string, pid int, visit func(descriptor) (more bool)) error {
	base := filepath.Join(proc, strconv.Itoa(pid))
	dir, err := os.Open(filepath.Join(base, "fd"))
	if err != nil {
		return gone(err)
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(16)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return gone(err)
		}
		for _, name := range names {
			var stat unix.Stat_t
			link := filepath.Join(base, "fd", name)
			if err := again(func() error { return unix.Stat(link, &stat) }); err != nil {
				continue // closed meanwhile
			}
			if !visit(descriptor{link, filepath.Join(base, "fdinfo", name), stat.Dev, stat.Ino}) {
				return nil
			}
		}
	}
}

// opened is the path that the descriptor was opened by, as the process sees it,
// whether or not it was removed since; "" where it is closed by now.
func (d descriptor) opened() string {
	link, _ := os.Readlink(d.link)
	return strings.TrimSuffix(link, " (deleted)")
}
