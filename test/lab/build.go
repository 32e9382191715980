package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// modulePath is the product's module, whose commands the lab runs.
const modulePath = "github.com/pod-checkpointer/pod-checkpointer"

// checkout is the folder of the product's module.
func checkout(ctx context.Context) (string, error) {
	dir, err := output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", modulePath)
	if err != nil {
		return "", fmt.Errorf("find the checkout (run from inside of it): %w", err)
	}
	return strings.TrimSpace(dir), nil
}

// goBuild is a static build without a trace of this machine in it, so that
// equal sources give equal programs.
func goBuild(ctx context.Context, dir, out, flags string, args ...string) *exec.Cmd {
	args = append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w " + flags, "-o", out}, args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	// Killed, it would leave its compilers running.
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, 10*time.Second
	return cmd
}

// buildCommand builds one command of the product or of the lab.
func buildCommand(ctx context.Context, root, pkg, out string) error {
	if _, err := outputOf(goBuild(ctx, root, out, "", "-tags", "grpcnotrace", pkg)); err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	return nil
}

// nested is a module of the lab's own, which keeps what is slow to build out of
// the product's go.mod.
type nested struct {
	dir   string
	pkg   string   // what is built of it
	flags []string // of go build and go list
	files []string // what it is built from
}

// key names what is built.
func (n nested) key() (string, error) {
	words := append([]string{runtime.Version(), runtime.GOARCH}, n.flags...)
	for _, name := range n.files {
		data, err := os.ReadFile(filepath.Join(n.dir, name))
		if err != nil {
			return "", err
		}
		words = append(words, string(data))
	}
	return keyOf(words...), nil
}

// build builds it and says how far it has come.
func (n nested) build(ctx context.Context, out, link string, say logf) error {
	total := 0 // unknown, if Go won't say
	list, err := output(ctx, n.dir, "go", append(append([]string{"list", "-deps"}, n.flags...), n.pkg)...)
	if err == nil {
		total = strings.Count(list, "\n")
	}
	cmd := goBuild(ctx, n.dir, out, link, append(slices.Clone(n.flags), "-v", n.pkg)...)
	return runCounting(cmd, filepath.Base(n.dir), total, say)
}

// runCounting runs a "go build -v" of what and says every 15 s how far it has come.
func runCounting(cmd *exec.Cmd, what string, total int, say logf) error {
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	begun, lines := time.Now(), make(chan string)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(pipe); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	tick := time.NewTicker(15 * time.Second)
	defer tick.Stop()
	var complaint strings.Builder
	for count := 0; ; {
		select {
		case line, ok := <-lines:
			if !ok {
				if err := cmd.Wait(); err != nil {
					return errors.Join(err, errors.New(tail(complaint.String(), 2000)))
				}
				return nil
			}
			if strings.ContainsAny(line, " \t") {
				_, _ = io.WriteString(&complaint, line+"\n") // package paths have no spaces
				continue
			}
			count++
		case <-tick.C:
			took := time.Since(begun).Round(time.Second)
			if count == 0 {
				say("  %s: nothing to compile so far, after %s: it is in Go's cache, or still being downloaded", what, took)
				continue
			}
			say("  %s: compiled %d of at most %d packages in %s", what, count, total, took)
		}
	}
}
