//go:build e2e

package bench

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
)

const (
	// patience is for what waits for a reflector, which backs off to a minute.
	patience = 3 * time.Minute
	// settle is how long a holder answers before it is ended: the daemon's default.
	settle = 10 * time.Second
)

// measureLab cuts the power of two labs in turn. Each cut of ours gives a boot
// and a handoff.
func measureLab(ctx context.Context, t *testing.T, p programs, add func(row)) {
	ours := up(ctx, t, lab.Options{Name: "bench", LockExec: p.lockExec, PodCheckpointer: p.podCheckpointer})
	require.NoError(t, protected(ctx, ours, time.Now(), controlPlane...))
	require.NoError(t, ours.PowerCut(ctx))
	limit := up(ctx, t, lab.Options{Name: "bench-limit", StaticControlPlane: true, NoDaemon: true, LockExec: p.lockExec})
	require.NoError(t, limit.PowerCut(ctx))

	c := cycles{
		boot:    series{what: "power cut: kubelet start to API ready", unit: seconds},
		static:  series{what: "a plain static pod", unit: seconds},
		handoff: series{what: "handoff: last answer to first", unit: seconds},
		killed:  series{what: "SIGKILL of a holder to first answer", unit: seconds},
	}
	// What was measured before an interrupt or a failure is shown.
	defer func() {
		add(row{series: c.handoff, limit: new(1.25), peer: &c.killed})
		add(row{series: c.boot, limit: new(1.35), peer: &c.static})
	}()
	for n := range *runs {
		require.NoError(t, c.ours(ctx, ours))
		require.NoError(t, c.limit(ctx, limit))
		say("run %d of %d: boot %.2f s, static pod %.2f s, handoff %.2f s, kill %.2f s", n+1, *runs,
			c.boot.values[n], c.static.values[n], c.handoff.values[n], c.killed.values[n])
	}
}

// up brings a lab up that goes down with the test.
func up(ctx context.Context, t *testing.T, o lab.Options) *lab.Lab {
	t.Helper()
	o.Say = func(line string) { say("%s: %s", o.Name, line) }
	l, err := lab.Up(ctx, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Down(context.WithoutCancel(ctx))) })
	return l
}

// cycles are what the labs' power cuts showed.
type cycles struct{ boot, static, handoff, killed series }

// limit boots the lab with the plain static pod.
func (c *cycles) limit(ctx context.Context, l *lab.Lab) error {
	begin, w, err := boot(ctx, l, false)
	if err != nil {
		return err
	}
	defer w.close()
	ready, err := w.answered(ctx, begin)
	if err != nil {
		return err
	}
	if err := pause(ctx, settle); err != nil {
		return err
	}
	created, err := containerCreated(ctx, l, "kube-apiserver-", begin)
	if err != nil {
		return err
	}
	c.static.add(begin, ready, inOrder(created, w.listening(begin))...)
	return l.PowerCut(ctx)
}

// ours boots the lab with the daemon, follows the handoff, and then ends another
// holder by hand.
func (c *cycles) ours(ctx context.Context, l *lab.Lab) error {
	begin, w, err := boot(ctx, l, true)
	if err != nil {
		return err
	}
	defer w.close()
	held, err := w.taken(ctx, lock.Process{})
	if err != nil {
		return err
	}
	ready, err := w.answered(ctx, held.at)
	if err != nil {
		return err
	}
	booted, err := w.bootPoints(ctx, begin, held.at)
	if err != nil {
		return err
	}
	c.boot.add(begin, ready, booted...)

	moved, err := w.taken(ctx, held.holder)
	if err != nil {
		return err
	}
	last := w.lastAnswer(moved.at)
	first, err := w.answered(ctx, moved.at)
	if err != nil {
		return err
	}
	if err := protected(ctx, l, first, apiServer); err != nil { // the daemon has verified it
		return err
	}
	log, err := daemonStory(l)
	if err != nil {
		return err
	}
	c.handoff.add(last, first, inOrder(log.since(last, "checkpoint told to go"), w.closed(last),
		[]point{{"lock moved", moved.at}}, w.listening(moved.at))...)

	if err := c.kill(ctx, l, w); err != nil {
		return err
	}
	// Both labs are at rest when they lose power.
	if err := protected(ctx, l, time.Now(), controlPlane...); err != nil {
		return err
	}
	if err := pause(ctx, settle); err != nil {
		return err
	}
	return l.PowerCut(ctx)
}

// bootPoints are what a boot comes past on its way to a checkpoint that is ready.
// They are asked for while its container is still there.
func (w *watch) bootPoints(ctx context.Context, begin, held time.Time) ([]point, error) {
	daemon, err := containerCreated(ctx, w.lab, "pod-checkpointer-", begin)
	if err != nil {
		return nil, err
	}
	copied, err := containerCreated(ctx, w.lab, "kube-apiserver-checkpoint-", begin)
	if err != nil {
		return nil, err
	}
	log, err := daemonStory(w.lab)
	if err != nil {
		return nil, err
	}
	if at, ok := log.began(begin); ok {
		daemon = append(daemon, point{"daemon is in its main", at})
	}
	return inOrder(daemon, log.since(begin, "leading", "manifest written"), copied,
		[]point{{"lock taken", held}}, w.listening(held)), nil
}

// boot boots and watches. The time is that of the kubelet's start.
func boot(ctx context.Context, l *lab.Lab, locked bool) (time.Time, *watch, error) {
	if err := l.Boot(ctx); err != nil {
		return time.Time{}, nil, err
	}
	kubelet, err := l.Component(lab.Kubelet)
	if err != nil {
		return time.Time{}, nil, err
	}
	w, err := startWatch(ctx, l, locked)
	return kubelet.Started, w, err
}

// containerCreated is when the container of the newest pod of kube-system whose
// name begins so was created in this boot.
func containerCreated(ctx context.Context, l *lab.Lab, prefix string, boot time.Time) ([]point, error) {
	pods, err := pods(ctx, l)
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		for _, c := range pod.Containers {
			if strings.HasPrefix(pod.Name, prefix) && pod.Source == "file" && c.CreatedAt.After(boot) {
				return []point{{"container of " + strings.TrimSuffix(prefix, "-") + " created", c.CreatedAt}}, nil
			}
		}
	}
	return nil, nil
}

func pods(ctx context.Context, l *lab.Lab) ([]cri.Pod, error) {
	socket, err := l.CRISocket()
	if err != nil {
		return nil, err
	}
	client, err := cri.New(socket)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return client.Pods(ctx)
}

// daemonStory is all that the daemon has logged on this node of itself and of the
// API server.
func daemonStory(l *lab.Lab) (story, error) {
	logs, err := l.NodePath("/var/log/pods")
	if err != nil {
		return nil, err
	}
	all, err := readStory(logs + "/kube-system_pod-checkpointer-*/pod-checkpointer/*.log")
	return slices.DeleteFunc(all, func(l line) bool { return l.Pod != "" && l.Pod != apiServer }), err
}
