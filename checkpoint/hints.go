package checkpoint

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// Hints make a pass come early, or a source be asked early. None is ever taken for a
// fact, and none is relied on. What it costs when one is lost:
//
//   - the end of a process that holds a lock or waits: none can be lost, since the kernel
//     tells of it to whoever has a pidfd; one of which we have none is looked at in each beat;
//   - an event of the runtime: six beats at rest, and a tenth of a second while
//     something is in motion. No start that is due at once waits for it, because such a one has a
//     lock, whose holder has ended;
//   - a change in the static pod directory: a beat, or six at rest, since each pass reads it;
//   - the end of the kubelet: what it said is up to kubeletRest old, and is asked for
//     anew as soon as something is in motion;
//   - a change at the API server: an Await that is silent is found out within 45 seconds.
const (
	// again is how soon a hint that broke is tried again.
	again = time.Second
	// against is the same where the runtime has no such thing: it may be replaced.
	against = time.Minute
	// imagesRest is how often the runtime is asked for the images that starts would need.
	imagesRest = 5 * time.Minute
	// kubeletRest is how often a synced kubelet is asked that keeps its connection: it
	// stays synced for as long as it lives.
	kubeletRest = 30 * time.Second
)

// calmBeat is the time between two passes while all is calm, and between two questions to
// the runtime at rest: six beats, unless they are long.
func calmBeat(beat time.Duration) time.Duration { return max(beat, min(6*beat, 6*time.Second)) }

// hint wakes the loop for a pass at once.
func (h *Host) hint() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// heard wakes the loop where an answer is news, or waited for. Else the beat counts.
func (h *Host) heard(news bool) {
	if news || h.wants.Load().Hurry {
		h.hint()
	}
}

// heardRuntime wakes the loop for a pass after each answer of the runtime, so that at rest
// both come at once, and the pass has what is new.
func (h *Host) heardRuntime(bool) { h.hint() }

// hearRuntime makes the runtime be asked when it says that something happened: the
// pass follows with the answer.
func (h *Host) hearRuntime(ctx context.Context) error {
	for said := false; ctx.Err() == nil; {
		err := h.runtime.Events(ctx, h.pods.chase)
		pause := again
		if errors.Is(err, cri.ErrNoEvents) {
			pause = against
			if !said {
				h.log.Info("no events of the runtime: it is asked at each beat", "why", err.Error())
			}
			said = true
		}
		wait(ctx, pause)
		h.pods.poke()
	}
	return nil
}

// hearDirectory wakes the loop when a manifest comes or goes.
func (h *Host) hearDirectory(ctx context.Context) error {
	for ctx.Err() == nil {
		// Whatever broke it: the pass reads the directory, and tells what is wrong with it.
		_ = kubelet.Watch(ctx, h.config.StaticPodDir, h.hint)
		wait(ctx, again)
	}
	return nil
}

// awaitKubelet blocks while a synced kubelet lives.
func (h *Host) awaitKubelet(ctx context.Context, sockets *kubelet.Client, v kubelet.View) error {
	if v.Regime != kubelet.Synced {
		return errors.New("it may get synced any time")
	}
	ctx, cancel := context.WithTimeout(ctx, kubeletRest)
	defer cancel()
	sockets.Await(ctx)
	return nil
}

// hearProcesses wakes the loop when one of these processes ends, and of no others. What
// the runtime says of it follows. One that can't be awaited is looked at in each beat.
func (h *Host) hearProcesses(processes []lock.Process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.awaited, func(p lock.Process, stop context.CancelFunc) bool {
		if slices.Contains(processes, p) {
			return false
		}
		stop()
		return true
	})
	for _, p := range processes {
		if _, ok := h.awaited[p]; ok {
			continue
		}
		ctx, stop := context.WithCancel(h.ctx)
		h.awaited[p] = stop
		h.group.Go(func() error {
			if lock.Await(ctx, h.config.Proc, p) == nil {
				h.pods.chase()
				h.hint()
				return nil
			}
			for wait(ctx, h.config.Poll); ctx.Err() == nil; wait(ctx, h.config.Poll) {
				h.hint()
			}
			return nil
		})
	}
}

// wait returns after d, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
