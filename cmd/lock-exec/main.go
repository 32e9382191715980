// Command lock-exec takes a lock file of the host and becomes the program that
// the lock guards, and it probes such a program. It is static, since the images
// of the programs that it guards have no shell, and its command line stays
// stable, since manifests on disk name it.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes, as a shell gives them. A signal that ends the wait is 128 and its number.
const (
	exitFailure = 1
	exitUsage   = 2
	exitCannot  = 126 // the program can't be executed
	exitAbsent  = 127 // there is no such program
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	os.Exit(run(stop, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// run is the program without its globals. It returns the exit code, unless it
// has become another program.
func run(stop <-chan os.Signal, args, env []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "check" {
		return check("/proc", args[1:], env, stdout, stderr)
	}
	return launch(stop, args, env, stdout, stderr)
}

// say writes one line, in one write, so that it stays whole among others.
func say(w io.Writer, format string, args ...any) {
	_, _ = io.WriteString(w, "lock-exec: "+fmt.Sprintf(format, args...)+"\n")
}

// misuse explains wrong usage.
func misuse(stderr io.Writer, command string, err error) int {
	say(stderr, "%v; see '%s --help'", err, command)
	return exitUsage
}

// notRun is the exit code for a program that Exec or Program could not run.
func notRun(err error) int {
	if errors.Is(err, fs.ErrNotExist) {
		return exitAbsent
	}
	return exitCannot
}
