package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

func uninstallCommand(getenv func(string) string) *cobra.Command {
	u := uninstaller{config: checkpoint.Defaults()}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Take pod-checkpointer off this node",
		Long: `Take pod-checkpointer off this node. Run it as root, on each node, after the
daemon's DaemonSet has been deleted.

It looks first, and removes nothing while a pod of the DaemonSet is on the node, or
while a checkpoint serves, starts or hands over: it says what to wait for. Then it
removes the manifest of the daemon's static copy and waits until that has ended,
takes the writer's lock, and looks again: if a checkpoint has come to serve meanwhile,
it puts the static copy back. Else it removes manifests of checkpoints that do not
serve, the copies with their Secrets, and the credentials.

lock-exec and the lock files stay for as long as a pod of this node starts through
them; so does this program. Nothing that it did not write is touched. It may be
interrupted, and run again as often as you like: it goes on where it was.

Exit status: 0 done, 1 refused or failed, 2 wrong usage.`,
		Example: `  # after kubectl delete -k manifests/base, on each node: what would it do?
  /opt/pod-checkpointer/bin/pod-checkpointer uninstall --dry-run

  # do it
  /opt/pod-checkpointer/bin/pod-checkpointer uninstall`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := configure(cmd, &u.config, getenv); err != nil {
				return err
			}
			u.out = cmd.OutOrStdout()
			return u.run(cmd.Context())
		},
	}
	u.bind(cmd.Flags())
	return cmd
}

// bind takes the flags of run that say where things are.
func (u *uninstaller) bind(flags *pflag.FlagSet) {
	all := pflag.NewFlagSet("run", pflag.ContinueOnError)
	bind(all, &u.config)
	for _, name := range []string{"node-name", "cri-endpoint", "static-pod-dir", "state-dir", "lock-dir", "bin-dir", "proc", "dry-run"} {
		flags.AddFlag(all.Lookup(name))
	}
	flags.Lookup("dry-run").Usage = "say what would be removed, and remove nothing"
	flags.DurationVar(&u.patience, "timeout", time.Minute, "how long a pod may take to end")
	timeout := flags.Lookup("timeout")
	timeout.Value = &patient{Value: timeout.Value}
}

// uninstaller removes what the daemon has left on a node. Each of its steps looks at
// the node itself, so that any of them may be the first after a crash.
type uninstaller struct {
	config   checkpoint.Config
	patience time.Duration // for one pod to end
	out      io.Writer

	runtime   *cri.Client
	manifests *kubelet.Manifests
	stays     [][2]string // what is left, and why
}

// endBeat is how often uninstall looks whether a pod has ended.
const endBeat = 200 * time.Millisecond

func (u *uninstaller) run(ctx context.Context) error {
	var err error
	if u.runtime, err = cri.New(u.config.CRIEndpoint); err != nil {
		return err
	}
	defer u.runtime.Close()
	if u.manifests, err = kubelet.OpenManifests(u.config.StaticPodDir, u.config.Node); err != nil {
		return err
	}
	if u.config.DryRun {
		u.manifests.ReadOnly()
	}
	seen, err := u.look(ctx)
	if err != nil {
		return fmt.Errorf("nothing was removed: %w", err)
	}
	u.tell(seen)
	if refused := refusals(seen, u.config); refused != nil {
		return fmt.Errorf("nothing was removed:\n%w", refused)
	}
	if u.config.DryRun {
		return nil
	}
	if err := u.remove(ctx); err != nil {
		return fmt.Errorf("stopped half way, and run again it goes on: %w", err)
	}
	u.summary()
	return nil
}

// remove goes from what writes to what was written.
func (u *uninstaller) remove(ctx context.Context) error {
	copies, err := u.endCopy(ctx)
	if err != nil {
		return err
	}
	writer, err := store.TryLock(u.config.StateDir)
	switch {
	case errors.Is(err, fs.ErrNotExist): // an earlier run removed it
	case err != nil:
		return fmt.Errorf("%w: end that daemon", err)
	default:
		defer writer.Release()
	}
	// Until its end the static copy has gone on with its work.
	seen, err := u.look(ctx)
	if err != nil {
		return err
	}
	seen.writer = lock.State{} // the lock is ours now
	if refused := refusals(seen, u.config); refused != nil {
		return errors.Join(fmt.Errorf("the daemon's static copy was ended, and then there was a reason to remove nothing:\n%w", refused), u.putBack(copies))
	}
	if err := u.endCheckpoints(ctx, seen); err != nil {
		return err
	}
	if err := u.unpin(ctx); err != nil {
		return err
	}
	if err := u.removeState(); err != nil {
		return err
	}
	if seen, err = u.look(ctx); err != nil {
		return err
	}
	return u.removeLocks(seen)
}

// endCopy removes the manifest of the static copy and waits for its end. It returns
// what it removed.
func (u *uninstaller) endCopy(ctx context.Context) ([]kubelet.Copy, error) {
	seen, err := u.look(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range seen.listing.Copies {
		if err := u.manifests.Remove(c.File); err != nil {
			return nil, err
		}
		u.did("removed", filepath.Join(u.config.StaticPodDir, c.File))
	}
	return seen.listing.Copies, u.ended(ctx, "the daemon's static copy", isCopy)
}

// putBack has the kubelet start the static copy again: a checkpoint that serves needs a
// daemon to hand over.
func (u *uninstaller) putBack(copies []kubelet.Copy) error {
	for _, c := range copies {
		path := filepath.Join(u.config.StaticPodDir, c.File)
		if err := u.manifests.Write(c.File, c.Data); err != nil {
			return fmt.Errorf("put back %s, without which no daemon is on this node: %w", path, err)
		}
		u.did("put back", path+": the daemon leads again")
	}
	return nil
}

// endCheckpoints removes the manifests that are left, which do not serve, and waits
// for the end of their pods, which mount what is removed next.
func (u *uninstaller) endCheckpoints(ctx context.Context, seen *sighting) error {
	for _, m := range seen.listing.Ours {
		if err := u.manifests.Remove(m.File); err != nil {
			return err
		}
		u.did("removed", filepath.Join(u.config.StaticPodDir, m.File))
	}
	return u.ended(ctx, "a checkpoint", isCheckpoint)
}

// unpin lets the kubelet remove the images of the copies again.
func (u *uninstaller) unpin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	images, err := u.runtime.Pins(ctx)
	if errors.Is(err, cri.ErrNoPins) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, image := range images {
		if err := u.runtime.Unpin(ctx, image); err != nil {
			return err
		}
		u.did("unpinned", "image "+image)
	}
	return nil
}

// ended waits until no pod of that kind is there any more.
func (u *uninstaller) ended(ctx context.Context, what string, is func(cri.Pod) bool) error {
	for waited := time.Duration(0); ; waited += endBeat {
		pods, err := u.pods(ctx)
		if err != nil {
			return err
		}
		var left []string
		for _, pod := range pods {
			if is(pod) && alive(pod) {
				left = append(left, pod.Namespace+"/"+pod.Name)
			}
		}
		switch {
		case len(left) == 0 && waited > 0:
			u.did("ended  ", what)
			return nil
		case len(left) == 0:
			return nil
		case waited >= u.patience:
			return fmt.Errorf("%s still runs, although its manifest is gone: the kubelet ends it once it has reached the API server; run this again then", strings.Join(left, ", "))
		case waited == 0:
			u.did("waiting", "for the end of "+strings.Join(left, ", "))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted while %s was ending", strings.Join(left, ", "))
		case <-time.After(endBeat):
		}
	}
}

func (u *uninstaller) did(what, to string) { fmt.Fprintln(u.out, what, to) }

// stay notes something that is left, and why.
func (u *uninstaller) stay(path, why string) { u.stays = append(u.stays, [2]string{path, why}) }

func (u *uninstaller) summary() {
	if len(u.stays) == 0 {
		fmt.Fprintln(u.out, "nothing of pod-checkpointer is left on this node")
		return
	}
	table := tabwriter.NewWriter(u.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STAYS\tBECAUSE")
	for _, s := range u.stays {
		fmt.Fprintf(table, "%s\t%s\n", s[0], s[1])
	}
	_ = table.Flush() // to a person who may be gone
}

// exists tells whether something is at path; what can't be looked at is.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
