package checkpoint

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/cri"
)

func TestOutsideAreThoseThatAskInVain(t *testing.T) {
	pod := func(namespace, source, key, value string) cri.Pod {
		return cri.Pod{Namespace: namespace, Name: "web", Source: source, Sandboxes: []cri.Sandbox{{
			Ready: true, Annotations: map[string]string{"kubernetes.io/config.source": source, key: value},
		}}}
	}
	const asks = "pod-checkpointer.io/checkpoint"
	require.Equal(t, []string{"default/web", "old/web"}, outside([]cri.Pod{
		pod("default", "api", asks, "true"),
		pod("old", "api", "checkpointer.alpha.coreos.com/checkpoint", "true"),
		pod("kube-system", "api", asks, "true"),
		pod("ops", "api", asks, "true"),
		pod("default", "api", asks, "false"),
		pod("default", "file", asks, "true"),
		pod("default", "api", "", ""),
		{Namespace: "default", Name: "no-sandbox", Source: "api"},
	}, []string{"kube-system", "ops"}))
}

func TestWhoAsksInVainIsTold(t *testing.T) {
	n := protected(t)
	l := n.loop(io.Discard)
	told := func(names ...string) []string {
		n.sources.outside.value = names
		n.pass(l)
		return l.Status().Problems
	}
	require.Empty(t, told())
	require.Equal(t, []string{"OutsideNamespaces: protection is asked for by default/web, and none of --namespaces is that: " +
		"nothing is saved of such a pod; add its namespace there and to rbac.yaml, or take the annotation away"}, told("default/web"))
	require.Contains(t, told("1", "2", "3", "4", "5")[0], " by 1, 2, 3, 4, 5, and")
	require.Contains(t, told("1", "2", "3", "4", "5", "6", "7")[0], " by 1, 2, 3, 4, 5 and 2 more, and", "the list has a bound")
	require.Equal(t, []string{"kube-system/kube-apiserver"}, []string{l.Status().Workloads[0].Workload}, "and it gains nothing")
	n.sources.outside.err = errors.New("deadline exceeded")
	require.Empty(t, told("default/web"), "who does not answer tells nothing")
}
