package checkpoint

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// count are Effects that count.
type count int

func (c *count) EndProcess(context.Context, lock.Process, time.Duration) error { *c++; return nil }

func (c *count) StopContainer(context.Context, string, time.Duration) error { *c++; return nil }

// TestHandOverLooksAgain: between the manifest's removal and the next reading of
// the lock table the kubelet may have ended the checkpoint, or the parent gone.
func TestHandOverLooksAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		holder  string
		waiters []string
		ended   int // processes, by us
		left    int // manifests
	}{
		"nothing changed":        {"checkpoint", []string{"parent-1"}, 1, 0},
		"the parent took over":   {"parent-1", nil, 0, 0},
		"the parent went":        {"checkpoint", nil, 0, 1},
		"another is first":       {"checkpoint", []string{"parent-2", "parent-1"}, 0, 1},
		"nobody has it any more": {"", nil, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.save(parent(t, "parent-1"))
			id := n.activate(1)
			uid := func(who string) string {
				if who == "checkpoint" {
					return id
				}
				return who
			}
			n.runs(checkpointPod(id, cri.Running, 0))
			n.runs(parentPod("parent-1", cri.Running, 0))
			n.runs(parentPod("parent-2", cri.Running, 0))
			n.locks(id, "parent-1")
			w, d := n.look()

			n.locks(uid(tt.holder), tt.waiters...)
			ends := new(count)
			a := applier{
				config: n.config, clock: n.clock, sources: n.sources, store: n.store, manifests: n.manifests,
				effects: ends, newID: func() string { return "fedcba9876543210fedcba9876543210" }, note: func(World, string, ...any) {},
			}
			holder, _ := w.Serves.Value()
			require.Equal(t, Checkpoint, holder.Role)
			action := giveWay(w, holder)
			require.NoError(t, a.handOver(t.Context(), w, d, action))
			require.Equal(t, count(tt.ended), *ends)
			manifests, err := n.static.ReadDir(".")
			require.NoError(t, err)
			require.Len(t, manifests, tt.left)
		})
	}
}
