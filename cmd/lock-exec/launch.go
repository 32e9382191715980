package main

import (
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

const launchHelp = `lock-exec takes a lock, or waits until it is free, and then becomes PROGRAM, which
holds the lock until it ends.

Usage:
  lock-exec [--lock FILE] [--env-dir DIR]... [--set NAME=TEXT]... [--expand] -- PROGRAM [ARG...]
  lock-exec check [--live|--ready] --lock FILE ... (see 'lock-exec check --help')

  --lock FILE     lock FILE; created where it is absent, its directory is not.
                  The directory must be the host's, so that all see one file.
  --env-dir DIR   set an environment variable for each file in DIR: the file's
                  name is the variable's, its content is the value, as it is.
                  Of two that set one variable the later DIR counts, and it
                  replaces one inherited.
  --set NAME=TEXT set an environment variable, after those of all files and of
                  each --set before it. In TEXT, $(OTHER) is the value of OTHER,
                  or stays as it is where there is no such variable; $$ is $.
  --expand        replace $(NAME) in PROGRAM and each ARG in the same way. No
                  value is looked into again.

Examples:
  lock-exec --lock /run/lock/pod-checkpointer/kube-apiserver.lock -- \
      kube-apiserver --secure-port=6443
  lock-exec --env-dir /etc/secret-env --expand -- etcd --name '$(NAME)'

Exit status, while PROGRAM has not taken over:
  1 the lock or the environment can't be had, 2 wrong usage,
  126 PROGRAM can't be executed, 127 there is no PROGRAM,
  130 SIGINT and 143 SIGTERM while it waits.
`

// launchArgs is the command line of a launch.
type launchArgs struct {
	lock    string   // "": no lock
	envDirs []string // later ones count
	sets    []string // NAME=TEXT
	expand  bool     // argv
	argv    []string // the program; not empty
}

func parseLaunch(args []string) (launchArgs, error) {
	var a launchArgs
	flags := newFlags("lock-exec")
	flags.Func("lock", "", nonEmpty(&a.lock))
	flags.Func("env-dir", "", func(dir string) error {
		var one string
		err := nonEmpty(&one)(dir)
		a.envDirs = append(a.envDirs, one)
		return err
	})
	flags.Func("set", "", func(entry string) error {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || name == "" {
			return errors.New("want NAME=TEXT")
		}
		a.sets = append(a.sets, entry)
		return validName(name)
	})
	flags.BoolVar(&a.expand, "expand", false, "")
	if err := flags.Parse(args); err != nil {
		return a, err
	}
	a.argv = flags.Args()
	switch {
	case len(a.argv) == 0:
		return a, errors.New("no PROGRAM after the flags")
	case a.lock == "" && len(a.envDirs) == 0 && len(a.sets) == 0 && !a.expand:
		return a, errors.New("none of --lock, --env-dir, --set and --expand, so there is nothing to do before PROGRAM")
	}
	return a, nil
}

// newFlags returns an empty set of flags that leaves all words to its caller.
func newFlags(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	return flags
}

func nonEmpty(to *string) func(string) error {
	return func(s string) error {
		if s == "" {
			return errors.New("must not be empty")
		}
		*to = s
		return nil
	}
}

func launch(stop <-chan os.Signal, args, env []string, stdout, stderr io.Writer) int {
	a, err := parseLaunch(args)
	if errors.Is(err, flag.ErrHelp) {
		_, _ = io.WriteString(stdout, launchHelp)
		return 0
	}
	if err != nil {
		return misuse(stderr, "lock-exec", err)
	}

	// What can be known to be wrong is said before the wait, not days later.
	argv, full, err := a.program(env)
	if err != nil {
		say(stderr, "%v", err)
		return exitFailure
	}
	if _, err := lock.Program(argv[0], full); err != nil {
		say(stderr, "%v", err)
		return notRun(err)
	}
	if a.lock == "" {
		err = lock.Exec(argv, full)
		say(stderr, "%v", err)
		return notRun(err)
	}

	held, code := take(stop, a.lock, stderr)
	if held == nil {
		return code
	}
	// A Secret may have changed while this process waited.
	argv, full, err = a.program(env)
	if err != nil {
		say(stderr, "%v", err)
		return exitFailure
	}
	select {
	case sig := <-stop:
		return stopped(stderr, a.lock, sig)
	default:
	}
	err = held.Exec(argv, full)
	say(stderr, "%v", err)
	return notRun(err)
}

// take returns the lock, or nil and the exit code. It says once that it waits
// and once that it holds.
func take(stop <-chan os.Signal, path string, stderr io.Writer) (*lock.Lock, int) {
	type result struct {
		lock *lock.Lock
		err  error
	}
	held, err := lock.Try(path)
	if err == nil {
		say(stderr, "holds %s, which was free", path)
		return held, 0
	}
	if !errors.Is(err, lock.ErrHeld) {
		say(stderr, "%v", err)
		return nil, exitFailure
	}

	// flock can't be told to give up, so it has a thread of its own, and a
	// signal ends the process under it: as process 1 of a container nobody else would.
	since := time.Now()
	done := make(chan result, 1)
	go func() {
		held, err := lock.Acquire(path)
		done <- result{held, err}
	}()
	say(stderr, "waits for %s, held by %s", path, holder(path))
	select {
	case sig := <-stop:
		return nil, stopped(stderr, path, sig)
	case r := <-done:
		if r.err != nil {
			say(stderr, "%v", r.err)
			return nil, exitFailure
		}
		say(stderr, "holds %s, after a wait of %s", path, time.Since(since).Round(time.Millisecond))
		return r.lock, 0
	}
}

func stopped(stderr io.Writer, path string, sig os.Signal) int {
	say(stderr, "stops waiting for %s: %v", path, sig)
	if number, ok := sig.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return exitFailure
}
