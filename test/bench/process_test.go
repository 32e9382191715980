//go:build e2e

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is one of this machine, by its number here.
type process int

func (p process) file(name string) string {
	return filepath.Join("/proc", strconv.Itoa(int(p)), name)
}

// number is a number of a file with lines "key: value".
func (p process) number(file, key string) (float64, error) {
	text, _, _ := strings.Cut(field(p.file(file), key), " ")
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s of %s: %w", key, p.file(file), err)
	}
	return n, nil
}

// memory is what is resident, all of it and the anonymous part, in MB (proc_pid_status(5)).
func (p process) memory() (resident, anonymous float64, err error) {
	if resident, err = p.number("status", "VmRSS"); err != nil {
		return 0, 0, err
	}
	anonymous, err = p.number("status", "RssAnon")
	return resident * 1024 / 1e6, anonymous * 1024 / 1e6, err
}

// written is how many bytes it has sent to a disk, now or later (proc_pid_io(5)).
func (p process) written() (float64, error) { return p.number("io", "write_bytes") }

// cpu is what all of its threads have used, those that have ended too. It is the
// clock of clock_getcpuclockid(3), which counts nanoseconds where /proc counts
// ticks of 10 ms: CPUCLOCK_SCHED, include/linux/posix-timers_types.h v6.18.
func (p process) cpu() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^p<<3|2), &ts); err != nil {
		return 0, fmt.Errorf("read the CPU clock of process %d: %w", p, err)
	}
	return time.Duration(ts.Nano()), nil
}

// cgroupCPU is what its container has used: it and what was run beside it, such
// as its probes.
func (p process) cgroupCPU() (time.Duration, error) {
	data, err := os.ReadFile(p.file("cgroup"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy, controllers, path: cgroups(7)
		switch {
		case len(f) != 3:
		case strings.Contains(","+f[1]+",", ",cpuacct,"):
			text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuacct", f[2], "cpuacct.usage"))
			if err != nil {
				return 0, err
			}
			ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			return time.Duration(ns), err
		case f[0] == "0":
			text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", f[2], "cpu.stat"))
			if err != nil {
				continue // of a machine that has both, the other one counts
			}
			_, rest, _ := strings.Cut(string(text), "usage_usec ")
			word, _, _ := strings.Cut(rest, "\n")
			us, err := strconv.ParseInt(word, 10, 64)
			if err == nil {
				return time.Duration(us) * time.Microsecond, nil
			}
		}
	}
	return 0, fmt.Errorf("no cgroup of process %d counts its CPU", p)
}
