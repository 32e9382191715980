package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
)

const (
	// outsideRest is how often somebody looks for pods that ask in vain: no decision
	// hangs on them.
	outsideRest = 5 * time.Minute
	// maxNamed is how many pods a finding names: whoever may make one may make many.
	maxNamed = 5
)

// askOutside names the pods of this node that ask to be protected, and are in none of
// the namespaces whose pods are.
func (h *Host) askOutside(ctx context.Context) ([]string, error) {
	pods, err := h.runtime.Sandboxes(ctx)
	return outside(pods, h.config.Namespaces), err
}

// Outside names the pods that ask to be protected in none of --namespaces.
func (h *Host) Outside() Answer[[]string] { return h.outside.answer() }

func outside(pods []cri.Pod, namespaces []string) []string {
	var names []string
	for _, pod := range pods {
		_, asks := snapshot.Asks(annotations(pod))
		if asks && pod.Source == "api" && !slices.Contains(namespaces, pod.Namespace) {
			names = append(names, pod.Namespace+"/"+pod.Name)
		}
	}
	return names
}

// inVain is the finding about them, none where there are none.
func inVain(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("OutsideNamespaces: protection is asked for by %s, and none of --namespaces is that: nothing is saved of such a pod; add its namespace there and to rbac.yaml, or take the annotation away", few(names))}
}

// few lists names, of many the first.
func few(names []string) string {
	listed := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		listed += fmt.Sprintf(" and %d more", more)
	}
	return listed
}
