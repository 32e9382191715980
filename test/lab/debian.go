package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// debianPackages are a runtime, what every runtime needs, and what they are
// linked with beyond libc.
// They are unpacked, never installed: installing containerd could remove a
// user's Docker.
var debianPackages = []string{"containerd", "runc", "containernetworking-plugins", "libseccomp2"}

// fetchDebian returns the folder that the packages are unpacked in. Where apt's
// lists are absent, or name versions that Debian has no more, it has them renewed.
func fetchDebian(ctx context.Context, c cache, say logf) (string, error) {
	dir, err := unpackDebian(ctx, c, say)
	if err == nil || ctx.Err() != nil {
		return dir, err
	}
	say("apt-get update: %v", err)
	if _, err := output(ctx, "/", "apt-get", "-q", "update"); err != nil {
		return "", err
	}
	return unpackDebian(ctx, c, say)
}

func unpackDebian(ctx context.Context, c cache, say logf) (string, error) {
	// The names of the packages' files, and with them their versions.
	uris, err := output(ctx, "/", "apt-get", append([]string{"download", "--print-uris"}, debianPackages...)...)
	if err != nil {
		return "", err
	}
	return c.get(ctx, "debian", keyOf(uris), func(dir string) error {
		say("download %s", strings.Join(debianPackages, ", "))
		down := filepath.Join(dir, "packages")
		if err := os.Mkdir(down, 0o755); err != nil {
			return err
		}
		// As apt's own user it could not write there.
		get := append([]string{"-o", "APT::Sandbox::User=root", "-q", "download"}, debianPackages...)
		if _, err := output(ctx, down, "apt-get", get...); err != nil {
			return err
		}
		files, err := filepath.Glob(filepath.Join(down, "*.deb"))
		if err != nil {
			return err
		}
		for _, file := range files {
			if _, err := output(ctx, down, "dpkg", "-x", file, dir); err != nil {
				return err
			}
		}
		return removeAll(down)
	})
}

// output runs a program in dir and returns what it printed; its error names
// the command and the end of what it complained about.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	return outputOf(cmd)
}

func outputOf(cmd *exec.Cmd) (string, error) {
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, tail(complaint.String(), 2000))
	}
	return out.String(), nil
}

func tail(text string, n int) string {
	text = strings.TrimSpace(text)
	if len(text) > n {
		text = "…" + text[len(text)-n:]
	}
	return text
}
