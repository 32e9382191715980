//go:build e2e

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
)

var (
	name       = flag.String("name", "e2e", "tells the cluster from others on the machine")
	keep       = flag.Bool("keep", false, "show what happens as it happens, and leave the cluster up")
	kubernetes = flag.String("kubernetes", "", "version of Kubernetes, instead of the lab's default")
	containerd = flag.String("containerd", "", "version of containerd, instead of the lab's default")
	daemon     = flag.String("pod-checkpointer", "", "ready daemon, instead of building it")
	lockExec   = flag.String("lock-exec", "", "ready lock-exec, instead of building it")
)

// handoffTimeout is enough for an API server on a busy machine.
const handoffTimeout = 30 * time.Second

// daemonFlags keep the run short.
var daemonFlags = []string{"--known-good-after=5s", "--handoff-settle=6s", "--handoff-timeout=" + handoffTimeout.String()}

// cluster is what all scenarios share.
var cluster struct {
	ctx  context.Context // ends when the run is interrupted, or has too little time left
	lab  *lab.Lab
	eyes *eyes
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

// run brings the cluster up, runs the scenarios and takes it down, whatever
// happens in between.
func run(m *testing.M) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if limit := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration); limit > 0 {
		// What go test does at its timeout would leave the cluster up.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit*9/10, errors.New("-timeout is near"))
		defer cancel()
	}
	begun := time.Now()
	l, err := lab.Up(ctx, lab.Options{
		Name: *name, Kubernetes: *kubernetes, Containerd: *containerd,
		DaemonFlags: daemonFlags, PodCheckpointer: *daemon, LockExec: *lockExec,
		MaxPods: 400, // a corpus of them, each as parent and checkpoint
		Say:     func(line string) { fmt.Println(line) },
	})
	if err != nil {
		fmt.Println("bring the cluster up:", err)
		return 1
	}
	defer func() {
		if err := leave(l, stop); err != nil {
			fmt.Println("leave the cluster:", err)
			code = 1
		}
	}()
	fmt.Printf("%6.2fs  cluster is up\n", time.Since(begun).Seconds())

	alone := watchExclusion(l)
	cluster.ctx, cluster.lab, cluster.eyes = ctx, l, open(l)
	code = m.Run()
	cluster.eyes.close()
	if err := alone.verdict(); err != nil {
		fmt.Println("FAIL: never two:", err)
		code = 1
	}
	return code
}

// leave takes the cluster down, or with -keep says how to.
func leave(l *lab.Lab, stop func()) error {
	stop() // a second Ctrl-C ends this, too
	if !*keep {
		return l.Down(context.Background())
	}
	command := "go run ./test/lab/cmd --name " + *name
	fmt.Printf(`
The cluster is still up.
  look at it       %[1]s kubectl get pods -A
  the daemon says  %[1]s kubectl --server=http://127.0.0.1:10299 get --raw /status
  once more        %[1]s reboot
  take it down     %[1]s down
`, command)
	return l.Close()
}
