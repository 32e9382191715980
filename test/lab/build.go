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
	"strings"
	"time"
)

// modulePath is the product's module, whose commands the lab runs.
const modulePath = "github.com/pod-checkpointer/pod-checkpointer"

// kubernetesParts are the programs of a control plane, by the name that the
// lab starts them under.
var kubernetesParts = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl",
}

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

// kubernetesModule is the nested module and the key of what it builds.
func kubernetesModule(root string) (dir, key string, err error) {
	dir = filepath.Join(root, "test", "lab", "kubernetes")
	words := []string{runtime.Version(), runtime.GOARCH}
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", "", err
		}
		words = append(words, string(data))
	}
	return dir, keyOf(words...), nil
}

// buildKubernetes returns a folder that holds a program for each of kubernetesParts.
func buildKubernetes(ctx context.Context, c cache, root string, say logf) (string, error) {
	dir, key, err := kubernetesModule(root)
	if err != nil {
		return "", err
	}
	return c.get(ctx, "kubernetes", key, func(into string) error {
		version, err := output(ctx, dir, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
		if err != nil {
			return err
		}
		version = strings.TrimSpace(version)
		say("build Kubernetes %s and etcd: about 9 minutes on 2 cores the first time, a moment when Go's cache is warm", version)
		cmd := goBuild(ctx, dir, filepath.Join(into, "kubernetes"), versionFlags(version), "-v", ".")
		if err := runCounting(cmd, countPackages(ctx, dir), say); err != nil {
			return fmt.Errorf("build Kubernetes: %w", err)
		}
		for _, part := range kubernetesParts {
			if err := os.Symlink("kubernetes", filepath.Join(into, part)); err != nil {
				return err
			}
		}
		return nil
	})
}

// versionFlags stamp the version; unstamped programs call themselves v0.0.0.
func versionFlags(version string) string {
	numbers := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	base := "-X k8s.io/component-base/version."
	return base + "gitVersion=" + version + " " + base + "gitMajor=" + numbers[0] + " " +
		base + "gitMinor=" + numbers[1] + " -X k8s.io/client-go/pkg/version.gitVersion=" + version
}

// countPackages is how many packages a cold build compiles; 0 if Go won't say.
func countPackages(ctx context.Context, dir string) int {
	list, err := output(ctx, dir, "go", "list", "-deps", ".")
	if err != nil {
		return 0
	}
	return strings.Count(list, "\n")
}

// runCounting runs a "go build -v" and says every 15 s how far it has come.
func runCounting(cmd *exec.Cmd, total int, say logf) error {
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
				say("  nothing to compile so far, after %s: it is in Go's cache, or still being downloaded", took)
				continue
			}
			say("  compiled %d of at most %d packages in %s", count, total, took)
		}
	}
}

// kubernetesVersion asks the API server's program.
func kubernetesVersion(ctx context.Context, dir string) (string, error) {
	text, err := output(ctx, "/", filepath.Join(dir, "kube-apiserver"), "--version")
	if err != nil {
		return "", err
	}
	fields := strings.Fields(text)
	if len(fields) != 2 || fields[0] != "Kubernetes" {
		return "", fmt.Errorf("ask kube-apiserver for its version: unexpected answer %q", text)
	}
	return fields[1], nil
}

// kubernetesImage holds the control plane's programs. Those that are one file
// under several names stay one.
func kubernetesImage(dir, version string) (image, error) {
	img := image{Ref: "lab.local/kube-apiserver:" + strings.ReplaceAll(version, "+", "_")}
	first := map[string]string{}
	for _, part := range kubernetesParts {
		real, err := filepath.EvalSymlinks(filepath.Join(dir, part))
		if err != nil {
			return image{}, err
		}
		file := imageFile{Path: "/usr/local/bin/" + part, From: real}
		if other, ok := first[real]; ok {
			file = imageFile{Path: file.Path, Link: other}
		} else {
			first[real] = part
		}
		img.Files = append(img.Files, file)
	}
	return img, nil
}
