package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/lock"
	"github.com/pod-checkpointer/pod-checkpointer/lock/probe"
)

const checkHelp = `lock-exec check is the probe of a container that runs under lock-exec. While the
container's process 1 waits for the lock it is alive and not ready, and nobody
is asked: on the host's network the one who holds the lock would answer. Once it
holds the lock, TARGET is asked as the kubelet would.

Usage:
  lock-exec check [--live|--ready] --lock FILE [--start-window DURATION] -- TARGET

TARGET is one of
  http URL    https URL    a status from 200 to 399; certificates are not verified
  tcp HOST:PORT            a connection
  exec PROGRAM [ARG...]    exit status 0

  --ready          for a readiness probe; the default
  --live           for a liveness or startup probe
  --lock FILE      as given to lock-exec
  --start-window D with --live: from the moment that the lock was taken, it is
                   alive for this long and nobody is asked, such as 30s

Without an answer from /proc/1 it is not known who holds the lock: not ready,
but alive, since a restart would take down a program that may well serve.
The container needs a process namespace of its own: no shareProcessNamespace, no
hostPID. The time that a question may take is the probe's timeoutSeconds.

Examples:
  lock-exec check --ready --lock /run/lock/pod-checkpointer/kube-apiserver.lock -- \
      https https://127.0.0.1:6443/readyz
  lock-exec check --live --lock /run/lock/pod-checkpointer/etcd.lock \
      --start-window 60s -- tcp 127.0.0.1:2379

Exit status: 0 passes, 1 does not, 2 wrong usage; of exec, the program's.
`

// checkArgs is the command line of a check.
type checkArgs struct {
	live   bool // else ready
	lock   string
	window time.Duration // 0: none
	target probe.Target
	argv   []string // of exec; else nil
}

func parseCheck(args []string) (checkArgs, error) {
	var a checkArgs
	flags := newFlags("check")
	ready := flags.Bool("ready", false, "")
	flags.BoolVar(&a.live, "live", false, "")
	flags.Func("lock", "", nonEmpty(&a.lock))
	flags.DurationVar(&a.window, "start-window", 0, "")
	if err := flags.Parse(args); err != nil {
		return a, err
	}
	switch {
	case *ready && a.live:
		return a, errors.New("--live and --ready exclude each other")
	case a.lock == "":
		return a, errors.New("--lock is missing")
	case a.window < 0:
		return a, fmt.Errorf("--start-window must not be below 0, as %s is", a.window)
	case a.window > 0 && !a.live:
		return a, errors.New("--start-window goes with --live alone: nothing is ready before it answers")
	}
	var err error
	a.target, a.argv, err = parseTarget(flags.Args())
	return a, err
}

func parseTarget(words []string) (probe.Target, []string, error) {
	switch {
	case len(words) < 2:
		return probe.Target{}, nil, errors.New("no TARGET: want http URL, https URL, tcp HOST:PORT or exec PROGRAM")
	case words[0] == "exec":
		return probe.Target{}, words[1:], nil
	case len(words) > 2:
		return probe.Target{}, nil, fmt.Errorf("%q is too much after the TARGET", words[2:])
	}
	target, err := probe.Parse(words[0], words[1])
	return target, nil, err
}

// check reads the procfs at proc, where process 1 is the one that it speaks of.
func check(proc string, args, env []string, stdout, stderr io.Writer) int {
	a, err := parseCheck(args)
	if errors.Is(err, flag.ErrHelp) {
		_, _ = io.WriteString(stdout, checkHelp)
		return 0
	}
	if err != nil {
		return misuse(stderr, "lock-exec check", err)
	}

	held, err := lock.HeldBy(proc, 1, a.lock)
	switch {
	case err != nil:
		// Killing needs to know, and so does serving.
		return answer(stdout, a.live, "not known whether it holds the lock: %v", err)
	case !held.Yes:
		return answer(stdout, a.live, "waits for %s", a.lock)
	case held.For >= 0 && held.For < a.window:
		return answer(stdout, true, "starts: holds the lock for %s of %s", held.For.Round(time.Millisecond), a.window)
	case a.argv != nil:
		// No child, so that a timeout of the probe leaves nothing behind.
		err := lock.Exec(a.argv, env)
		return answer(stdout, false, "%v", err)
	}
	if err := a.target.Ask(context.Background()); err != nil {
		return answer(stdout, false, "holds the lock and does not answer: %v", err)
	}
	return answer(stdout, true, "holds the lock and answers")
}

// answer says why a check passes or not, and returns its exit code.
func answer(stdout io.Writer, passes bool, format string, args ...any) int {
	say(stdout, format, args...)
	if passes {
		return 0
	}
	return exitFailure
}
