package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
)

// later are flags of the contract that this version does nothing with. They
// are refused where they are set, so that nobody relies on them unheard.
var later = map[string]string{
	"peer-endpoints": "API servers on other masters",
	"removal-grace":  "how long a workload must be gone before it is removed",
}

// bind makes the flags of run, each filling one field of c.
func bind(flags *pflag.FlagSet, c *checkpoint.Config) {
	flags.StringVar(&c.Node, "node-name", c.Node, "this node, as the API server knows it (default $NODE_NAME, else the lower-cased hostname)")
	flags.StringVar(&c.Kubeconfig, "kubeconfig", c.Kubeconfig, "credentials for the API server; read again when the file changes (default the pod's service account, else <state-dir>/kubeconfig)")
	flags.StringVar(&c.APIEndpoint, "api-endpoint", c.APIEndpoint, "https URL of the API server, for the pod's service account; before a port an IPv6 address needs no brackets (default https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT)")
	flags.StringVar(&c.CRIEndpoint, "cri-endpoint", c.CRIEndpoint, "socket of the container runtime, which must speak CRI v1")
	flags.StringVar(&c.StaticPodDir, "static-pod-dir", c.StaticPodDir, "the kubelet's staticPodPath")
	flags.StringVar(&c.KubeletDir, "kubelet-dir", c.KubeletDir, "the kubelet's root directory, for its podresources and pods sockets")
	flags.StringVar(&c.StateDir, "state-dir", c.StateDir, "where generations are kept")
	flags.StringVar(&c.LockDir, "lock-dir", c.LockDir, "lock files, one a workload")
	flags.StringVar(&c.BinDir, "bin-dir", c.BinDir, "where lock-exec stands on the host")
	flags.StringVar(&c.Proc, "proc", c.Proc, "the host's procfs")
	flags.StringSliceVar(&c.Namespaces, "namespaces", c.Namespaces, "where the annotation counts")
	flags.DurationVar(&c.Poll, "poll", c.Poll, "the beat")
	flags.DurationVar(&c.KnownGoodAfter, "known-good-after", c.KnownGoodAfter, "a parent that holds the lock and is ready for so long proves its generation")
	flags.DurationVar(&c.ActivateAfter, "activate-after", c.ActivateAfter, "without a lock, a parent is gone for so long before its checkpoint starts")
	flags.DurationVar(&c.StartTimeout, "start-timeout", c.StartTimeout, "a started checkpoint must be ready by then")
	flags.DurationVar(&c.HandoffSettle, "handoff-settle", c.HandoffSettle, "a checkpoint serves this long before it hands over")
	flags.DurationVar(&c.HandoffTimeout, "handoff-timeout", c.HandoffTimeout, "a parent that took the lock and is not ready by then is rolled back")
	flags.StringVar(&c.Listen, "listen", c.Listen, "where /healthz, /readyz and /status are served by the copy that leads")
	flags.StringVar(&c.Socket, "socket", c.Socket, "unix socket on which this copy serves them, leading or waiting")
	flags.BoolVar(&c.DryRun, "dry-run", c.DryRun, "decide and say; start, stop and write nothing")
	for name, use := range later {
		flags.String(name, "", use+" (not yet used; refused when set)")
		_ = flags.MarkHidden(name) // fails only for a flag that does not exist
	}
	flags.VisitAll(func(f *pflag.Flag) { f.Value = &patient{Value: f.Value} })
}

// patient is a flag's value that keeps what it can't read, so that one wrong flag
// does not hide the next.
type patient struct {
	pflag.Value
	wrong error
}

func (p *patient) Set(text string) error {
	old := p.String()
	if err := p.Value.Set(text); err != nil {
		p.wrong = fmt.Errorf("must be a %s, not %q", p.Type(), text)
		_ = p.Value.Set(old) // which it could read before
	}
	return nil
}

// configure is the configuration by flags, then environment, then defaults.
// Everything that is wrong is named at once.
func configure(cmd *cobra.Command, c *checkpoint.Config, getenv func(string) string) error {
	var wrong []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := "--" + f.Name
		if value := getenv(variable(f.Name)); value != "" && !f.Changed {
			name = "$" + variable(f.Name)
			_ = cmd.Flags().Set(f.Name, value) // a patient never fails
		}
		if p, ok := f.Value.(*patient); ok && p.wrong != nil {
			wrong = append(wrong, fmt.Errorf("%s %w", name, p.wrong))
		}
		if _, ok := later[f.Name]; ok && f.Changed {
			wrong = append(wrong, fmt.Errorf("--%s is not used by this version: leave it out", f.Name))
		}
	})
	if c.Node == "" {
		c.Node = nodeName(getenv)
	}
	if host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT"); host != "" && port != "" {
		c.Service = "https://" + net.JoinHostPort(host, port)
	}
	c.APIEndpoint = checkpoint.Bracketed(c.APIEndpoint)
	if err := c.Validate(); err != nil {
		wrong = append(wrong, err)
	}
	if len(wrong) > 0 {
		return usageError{errors.Join(wrong...)}
	}
	return nil
}

// variable is how the environment names a flag.
func variable(flag string) string {
	return "POD_CHECKPOINTER_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func nodeName(getenv func(string) string) string {
	if name := getenv("NODE_NAME"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return strings.ToLower(name)
}
