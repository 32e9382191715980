package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

// installed are the programs that stand beside each other in the image.
var installed = []string{"lock-exec", "pod-checkpointer"}

func installCommand() *cobra.Command {
	var binDir string
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Put lock-exec and pod-checkpointer on this node's disk",
		Long: `Copy lock-exec and pod-checkpointer, from beside this program, into --bin-dir.

An init container of the daemon's pod does this, so that the pods of the control
plane find lock-exec on the node. Each file is written beside the old one, synced,
and renamed over it: who runs the old one goes on with it, and a crash leaves the
old or the new. What is there already is left as it is, and nothing is removed.

Exit status: 0 both are there, 1 one could not be written, 2 wrong usage.`,
		Example: `  # as the init container does it, with the host's directory mounted
  pod-checkpointer install --bin-dir=/opt/pod-checkpointer/bin`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !filepath.IsAbs(binDir) {
				return usageError{fmt.Errorf("--bin-dir must be an absolute path, not %q", binDir)}
			}
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			to, err := openBin(binDir)
			if err != nil {
				return err
			}
			return install(filepath.Dir(self), to, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&binDir, "bin-dir", checkpoint.Defaults().BinDir, "where the programs are to stand; made if it is absent")
	return cmd
}

// openBin leaves a directory that is there as it is, its mode too.
func openBin(path string) (*durable.Dir, error) {
	dir, err := durable.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		dir, err = durable.Create(path, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("open --bin-dir: %w", err)
	}
	return dir, nil
}

// install copies the programs and says of each what became of it. After an error
// a program is the old one or the new one, and never a part.
func install(from string, to *durable.Dir, out io.Writer) error {
	for _, name := range installed {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return fmt.Errorf("install %s: %w", name, err)
		}
		target := filepath.Join(to.Path(), name)
		if same(to, name, data) {
			fmt.Fprintln(out, target, "is up to date")
			continue
		}
		if err := to.WriteFile(name, data, 0o755); err != nil {
			return fmt.Errorf("install %s in --bin-dir %s: %w", name, to.Path(), err)
		}
		fmt.Fprintln(out, target, "installed")
	}
	return nil
}

// same tells whether a file holds these bytes and whether all may run it. One
// that can't be read is to be written.
func same(dir *durable.Dir, name string, data []byte) bool {
	info, err := dir.Stat(name)
	if err != nil || info.Mode() != 0o755 || info.Size() != int64(len(data)) {
		return false
	}
	old, err := dir.ReadFile(name)
	return err == nil && bytes.Equal(old, data)
}
