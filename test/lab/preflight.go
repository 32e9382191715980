package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// facts are what a lab needs to know of a machine.
type facts struct {
	root        bool
	missing     []string // capabilities
	programs    map[string]bool
	overlay     bool   // the kernel has overlayfs
	pidfd       bool   // Linux 5.8 or later
	controllers string // cgroup v1 hierarchies that are absent; "none": no cgroups at all
	memory      uint64 // bytes available
	disk        uint64 // bytes free below the cache
	stacked     bool   // the cache lies on an overlay itself
	cold        bool   // Kubernetes must be built
	parts       []string
}

const gib = 1 << 30

// neededPrograms, and what they are for.
var neededPrograms = map[string]string{
	"go":      "builds the lab, see https://go.dev/dl",
	"ip":      "makes network namespaces: package iproute2",
	"mount":   "is what the kubelet mounts with: package util-linux",
	"apt-get": "downloads containerd and runc: the lab runs on Debian and its kin",
	"dpkg":    "unpacks them",
}

// problems are all that is wrong, each with what to do about it.
func (f facts) problems() []string {
	var out []string
	say := func(bad bool, format string, args ...any) {
		if bad {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	say(!f.root, "root is needed for namespaces, mounts and cgroups: run it with sudo")
	say(f.root && len(f.missing) > 0, "root lacks %s: run it outside of a container, or in a privileged one", strings.Join(f.missing, ", "))
	var programs []string
	for name := range neededPrograms {
		programs = append(programs, name)
	}
	slices.Sort(programs)
	for _, name := range programs {
		say(!f.programs[name], "program %s is missing: it %s", name, neededPrograms[name])
	}
	say(!f.overlay, "the kernel has no overlayfs, which holds the images of containers")
	say(!f.pidfd, "the kernel is older than Linux 5.8")
	say(f.controllers == "none", "no cgroup file system is mounted at %s", cgroupMount)
	say(f.controllers != "" && f.controllers != "none", "cgroup v1 without %s: mount them below %s", f.controllers, cgroupMount)
	need := uint64(2 * gib)
	if f.cold {
		need = 4 * gib
	}
	say(f.memory < need, "memory: %.1f GiB are available, %d are needed", float64(f.memory)/gib, need/gib)
	need = 3 * gib
	if f.cold {
		need = 10 * gib
	}
	say(f.disk < need, "disk: %.1f GiB are free for the cache, %d are needed (XDG_CACHE_HOME moves it)", float64(f.disk)/gib, need/gib)
	say(f.stacked, "the cache lies on an overlay, where containerd can't put its own: set XDG_CACHE_HOME to a folder on a disk")
	say(len(f.parts) > 0, "the folder of ready Kubernetes programs lacks %s", strings.Join(f.parts, ", "))
	return out
}

// preflight returns one error that names everything that is missing.
func preflight(ctx context.Context, o Options) error {
	problems := look(ctx, o).problems()
	if len(problems) == 0 {
		return nil
	}
	return errors.New("this machine can't run a lab:\n  " + strings.Join(problems, "\n  "))
}

// look asks the machine. What can't be found out counts as missing.
func look(ctx context.Context, o Options) facts {
	f := facts{root: os.Geteuid() == 0, programs: map[string]bool{}, missing: missingCapabilities()}
	for name := range neededPrograms {
		_, err := exec.LookPath(name)
		f.programs[name] = err == nil
	}
	filesystems, _ := os.ReadFile("/proc/filesystems")
	f.overlay = strings.Contains(string(filesystems), "\toverlay\n")
	if fd, err := unix.PidfdOpen(os.Getpid(), 0); err == nil {
		f.pidfd = true
		_ = unix.Close(fd)
	}
	f.controllers = missingControllers()
	f.memory = memoryAvailable()
	var st unix.Statfs_t
	if unix.Statfs(existing(o.Cache), &st) == nil {
		f.disk = st.Bavail * uint64(st.Bsize)
		f.stacked = st.Type == unix.OVERLAYFS_SUPER_MAGIC
	}
	f.cold = o.KubernetesBin == "" && f.programs["go"] && mustBuild(ctx, o)
	if o.KubernetesBin != "" {
		for _, part := range kubernetesParts {
			if _, err := os.Stat(filepath.Join(o.KubernetesBin, part)); err != nil {
				f.parts = append(f.parts, part)
			}
		}
	}
	return f
}

func mustBuild(ctx context.Context, o Options) bool {
	root, err := checkout(ctx)
	if err != nil {
		return false // building will say so
	}
	key, err := kubernetesModule(root, o.Kubernetes).key()
	return err == nil && !cache{o.Cache}.has("kubernetes", key)
}

// existing is path, or the nearest folder above it that is there.
func existing(path string) string {
	for path != "/" {
		if _, err := os.Stat(path); err == nil {
			break
		}
		path = filepath.Dir(path)
	}
	return path
}

// missingCapabilities are those that the lab uses and root does not have.
func missingCapabilities() []string {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "\nCapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	have, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	if err != nil {
		return nil
	}
	var out []string
	for name, bit := range map[string]int{
		"CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN, "CAP_NET_ADMIN": unix.CAP_NET_ADMIN, "CAP_SYS_CHROOT": unix.CAP_SYS_CHROOT,
		"CAP_SYS_PTRACE": unix.CAP_SYS_PTRACE, "CAP_KILL": unix.CAP_KILL, "CAP_MKNOD": unix.CAP_MKNOD,
	} {
		if have&(1<<bit) == 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func missingControllers() string {
	roots, err := hierarchies()
	if err != nil || len(roots) == 0 {
		return "none"
	}
	if cgroupV2() {
		return ""
	}
	var out []string
	for _, name := range []string{"blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"} {
		if _, err := os.Stat(filepath.Join(cgroupMount, name)); err != nil {
			out = append(out, name)
		}
	}
	return strings.Join(out, ", ")
}

func memoryAvailable() uint64 {
	info, _ := os.ReadFile("/proc/meminfo")
	_, rest, _ := strings.Cut(string(info), "MemAvailable:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseUint(fields[0], 10, 64)
	return kib << 10
}
