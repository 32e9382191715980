package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDeps keeps out of the daemon what would weigh more than all the rest of
// it, in the binary and in memory. Most of it comes in unseen, with one import.
func TestDeps(t *testing.T) {
	unwanted := []string{
		"k8s.io/client-go/kubernetes", "k8s.io/client-go/informers", "k8s.io/client-go/tools/events",
		"k8s.io/cri-client", "k8s.io/cli-runtime", "sigs.k8s.io/controller-runtime",
		"go.etcd.io/etcd", "go.opentelemetry.io", "golang.org/x/net/trace",
		"github.com/containerd/containerd", "github.com/containerd/ttrpc", "github.com/sirupsen/logrus",
		"github.com/stretchr/testify", "github.com/rogpeppe/go-internal", "testing", "net/http/httptest",
	}
	// As the daemon is built: without the tag, grpc brings golang.org/x/net/trace.
	out, err := exec.Command("go", "list", "-deps", "-tags", "grpcnotrace", ".").Output()
	require.NoError(t, err)
	deps := strings.Fields(string(out))
	require.Contains(t, deps, "github.com/pod-checkpointer/pod-checkpointer/checkpoint", "the list is the daemon's")
	for _, dep := range deps {
		for _, u := range unwanted {
			if dep == u || strings.HasPrefix(dep, u+"/") {
				t.Errorf("pod-checkpointer depends on %s", dep)
			}
		}
	}
}
