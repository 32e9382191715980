package lock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Exec turns this process into the program argv, as the function Exec does, and
// lets it keep the lock. It returns only on error, and then still holds it.
//
// The program's own children inherit the lock too, as long as they do not close
// what they do not know; in a container they end with the program.
func (l *Lock) Exec(argv, env []string) error {
	if _, err := unix.FcntlInt(uintptr(l.fd), unix.F_SETFD, 0); err != nil {
		return fmt.Errorf("keep lock %s across exec: %w", l.path, err)
	}
	err := Exec(argv, env)
	_, _ = unix.FcntlInt(uintptr(l.fd), unix.F_SETFD, unix.FD_CLOEXEC)
	return err
}

// Exec turns this process into the program argv, which it looks for as
// [Program] does. The program finds every signal at its default and none
// blocked, whatever this process inherited or asked for. It returns only on
// error.
func Exec(argv, env []string) error {
	path, err := Program(argv[0], env)
	if err != nil {
		return err
	}
	// exec makes a signal that is caught default, and keeps one that is ignored.
	// Package signal would not do: it leaves alone 32 and 33, which some C
	// libraries pass on ignored, and takes most of a millisecond.
	for _, ignored := range ignoredSignals() {
		restore := setDefault(ignored)
		defer restore()
	}

	// exec keeps the mask of the thread that calls it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var none, before unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &none, &before); err != nil {
		return fmt.Errorf("exec %s: sigmask: %w", path, err)
	}
	err = syscall.Exec(path, argv, env)
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	return fmt.Errorf("exec %s: %w", path, err)
}

// ignoredSignals asks the kernel, since the runtime leaves some as they were
// inherited and does not tell which.
func ignoredSignals() []syscall.Signal {
	all := ^uint64(0)
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		_, after, _ := strings.Cut(string(status), "SigIgn:\t")
		mask, _, _ := strings.Cut(after, "\n")
		if set, err := strconv.ParseUint(mask, 16, 64); err == nil {
			all = set
		}
	}
	var ignored []syscall.Signal
	for n := range 64 {
		if all&(1<<n) != 0 {
			ignored = append(ignored, syscall.Signal(n+1))
		}
	}
	return ignored
}

// sigaction is the kernel's, rt_sigaction(2): the handler first, of which 0 is the
// default, then flags, restorer and mask.
type sigaction [4]uint64

// setDefault gives a signal its default action; what it returns undoes that.
func setDefault(s syscall.Signal) (restore func()) {
	var before, def sigaction
	set := func(to, old *sigaction) {
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s),
			uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
	}
	set(&def, &before)
	return func() { set(&before, nil) }
}

// Program returns the path of the program name. As execvp(3), it looks for a
// name without a slash in the directories of PATH, as env has it; an empty one
// is the current directory, and no PATH at all is "/bin:/usr/bin". The error is
// fs.ErrNotExist where there is none, and says why where there is one that can't
// be executed.
func Program(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if err := executable(name); err != nil {
			return "", fmt.Errorf("find program %s: %w", name, err)
		}
		return name, nil
	}
	path, ok := lookup(env, "PATH")
	if !ok {
		path = "/bin:/usr/bin"
	}
	absent := fmt.Errorf("find program %q in PATH: %w", name, fs.ErrNotExist) // a PATH may be of a Secret
	if name == "" {
		return "", absent
	}
	denied := error(nil)
	for _, dir := range strings.Split(path, ":") {
		file := filepath.Join(dir, name)
		if dir == "" {
			file = "./" + name
		}
		err := executable(file)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) && denied == nil {
			denied = fmt.Errorf("find program %s: %w", file, err)
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", absent
}

func executable(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return errors.Unwrap(err)
	case info.IsDir():
		return unix.EISDIR
	}
	return unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS)
}

// lookup returns the last value that env gives name: env is in the form of
// os.Environ, and like os/exec a later entry replaces an earlier one.
func lookup(env []string, name string) (value string, ok bool) {
	for _, entry := range env {
		if v, found := strings.CutPrefix(entry, name+"="); found {
			value, ok = v, true
		}
	}
	return value, ok
}
