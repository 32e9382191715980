package store

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

func TestAllThatContainersMountIsLabelledAndNothingElse(t *testing.T) {
	k := durable.NewDisk()
	s := labelledStore(openOn(t, k))
	two(t, s)
	assert.Empty(t, k.Labels())
	points := map[string][]string{"empty": {"a/b"}}
	require.NoError(t, second(s.Stage(api, 1, id1, points)))
	require.NoError(t, s.Refresh(api, 2, id1))

	staged := withPrefix(files(t, dirOf(t, k)), "activations/"+id1)
	assert.Len(t, staged, 15)
	assert.Empty(t, unlabelled(staged, k.Labels()))
	for name := range k.Labels() {
		assert.Contains(t, name, "/activations/"+id1)
	}
	assert.Empty(t, s.Problems())
}

func TestStartDoesNotWaitForALabel(t *testing.T) {
	k := durable.NewDisk()
	s := labelledStore(openOn(t, k))
	two(t, s)
	refuse := func(volume string) {
		k.Fail(func(op, name string) error {
			if op == "label" && strings.Contains(name, volume+"/..data") {
				return syscall.EACCES
			}
			return nil
		})
	}
	refuse("certs")
	require.NoError(t, second(s.Stage(api, 1, id1, nil)))
	refuse("empty")
	require.NoError(t, second(s.Stage(api, 1, id2, nil)))
	k.Fail(nil)
	require.NoError(t, s.Refresh(api, 2, id1))
	require.Len(t, s.Problems(), 2, "one for each activation")
	assert.Regexp(t, "^SELinuxLabel: activations/"+id1+": label /state/.*/certs/..data: permission denied: ", s.Problems()[0])
	assert.Regexp(t, "^SELinuxLabel: activations/"+id2+": label /state/.*/empty/..data: permission denied: ", s.Problems()[1])
	require.NoError(t, s.Prune(func(id string) bool { return id == id2 }))
	assert.Len(t, s.Problems(), 1, "the other one is gone")
}

func TestStageThatFailedLeavesNoFindingOfItsLabels(t *testing.T) {
	k := durable.NewDisk()
	s := labelledStore(openOn(t, k))
	two(t, s)
	k.Fail(func(op, _ string) error {
		if op == "label" || op == "symlink" {
			return syscall.ENOSPC
		}
		return nil
	})
	require.ErrorIs(t, second(s.Stage(api, 1, id1, nil)), syscall.ENOSPC)
	assert.Empty(t, s.Problems())
}
