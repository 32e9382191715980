package checkpoint

import (
	"cmp"
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// newer sorts pods, the newest first. The API server counts whole seconds, and of those
// of one second the same has to be first in each view.
func newer(a, b v1.Pod) int {
	return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// siblings is the finding about pods of one workload that all stay on this node, none
// where there is but one.
func siblings(names []string) []string {
	if len(names) < 2 {
		return nil
	}
	return []string{fmt.Sprintf("Siblings: %s are pods of this workload, and all on this node: they have one checkpoint, that of the newest, %s, which starts when none of them runs; let no two be on one node (a DaemonSet, or anti-affinity). While an update goes on it is so for a moment",
		few(names), names[0])}
}
