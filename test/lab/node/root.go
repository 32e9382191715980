package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// bootIDPath is where the kernel tells its boot id; a mount covers it with the
// node's own. That mount is seen through a recursive bind of the node's /proc
// (a hostPath volume), not in the fresh procfs that every container gets.
const bootIDPath = "/proc/sys/kernel/random/boot_id"

// enter makes the plan's root and moves this process into it. It runs in a
// mount namespace that the lab made for this process alone.
func enter(p Plan) error {
	// Without this, mounts below would reach the machine where systemd shares its root.
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	root, err := overlay(p.Mount)
	if err != nil {
		return err
	}
	if err := system(root); err != nil {
		return err
	}
	for _, b := range p.Binds {
		if err := bind(root, b); err != nil {
			return err
		}
	}
	if err := identity(root, p); err != nil {
		return err
	}
	return pivot(root)
}

// overlay lays a writable layer in memory over the machine's root. Mounts of
// the machine do not show through an overlay, so that those which hold its
// programs are bound again.
func overlay(base string) (string, error) {
	if err := mount("tmpfs", base, "tmpfs", 0, "mode=755"); err != nil {
		return "", err
	}
	root := filepath.Join(base, "root")
	for _, dir := range []string{"root", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o755); err != nil {
			return "", err
		}
	}
	layers := fmt.Sprintf("lowerdir=/,upperdir=%s/upper,workdir=%s/work", base, base)
	if err := mount("overlay", root, "overlay", 0, layers); err != nil {
		return "", err
	}
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64"} {
		if !isMount(dir) {
			continue
		}
		if err := mount(dir, root+dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return "", err
		}
	}
	return root, nil
}

func isMount(dir string) bool {
	var st, up unix.Stat_t
	return unix.Lstat(dir, &st) == nil && unix.Lstat(filepath.Dir(dir), &up) == nil &&
		st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Dev != up.Dev
}

// system mounts what a kernel offers. The sysfs is the node's own network
// namespace's; the cgroup file systems are the machine's, since cgroup v1
// can't be mounted twice in another shape.
func system(root string) error {
	return errors.Join(
		mount("proc", root+"/proc", "proc", 0, ""),
		mount("sysfs", root+"/sys", "sysfs", 0, ""),
		mount("/sys/fs/cgroup", root+"/sys/fs/cgroup", "", unix.MS_BIND|unix.MS_REC, ""),
		mount("/dev", root+"/dev", "", unix.MS_BIND|unix.MS_REC, ""),
		mount("tmpfs", root+"/run", "tmpfs", 0, "mode=755"),
		mount("tmpfs", root+"/tmp", "tmpfs", 0, "mode=1777"),
	)
}

func bind(root string, b Bind) error {
	to := filepath.Join(root, b.To)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := mount(b.From, to, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if !b.ReadOnly {
		return nil
	}
	return mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// identity gives the node its own names, so that nothing in it takes itself
// for the machine, nor for the boot before.
func identity(root string, p Plan) error {
	files := map[string]string{
		"/etc/machine-id":  p.MachineID + "\n",
		"/etc/hostname":    p.Hostname + "\n",
		"/etc/hosts":       "127.0.0.1 localhost\n::1 localhost\n",
		"/etc/resolv.conf": "nameserver 127.0.0.1\n", // nobody answers: no name leaves the node
		"/run/lab/boot_id": p.BootID + "\n",
	}
	for path, text := range files {
		if err := write(root+path, text); err != nil {
			return err
		}
	}
	if err := mount(root+"/run/lab/boot_id", root+bootIDPath, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Sethostname([]byte(p.Hostname))
}

// write replaces path, and not what a link at path leads to.
func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// pivot makes root this process's root, lets go of the machine's, and shares
// all mounts within the node, as the kubelet and runc expect of a real one.
func pivot(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot root to %s: %w", root, err)
	}
	// The old root now lies on top of the new one, pivot_root(2).
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the machine's root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

func mount(source, target, fstype string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s%s at %s: %w", fstype, source, target, err)
	}
	return nil
}
