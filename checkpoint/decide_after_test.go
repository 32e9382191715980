package checkpoint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// away: the API server, after which this workload starts, does not answer.
func away() saw {
	return func(w *World) { w.After = []Dependency{{Name: "kube-system/kube-apiserver", Known: true, Since: now}} }
}

// back: it does, for so long.
func back(long time.Duration) saw {
	return func(w *World) {
		w.After = []Dependency{{Name: "kube-system/kube-apiserver", Known: true, Answers: true, Since: now - long}}
	}
}

// lost: it has not answered for so long.
func lost(long time.Duration) saw {
	return func(w *World) {
		w.After = []Dependency{{Name: "kube-system/kube-apiserver", Known: true, Since: now - long}}
	}
}

// etcdAway: a readiness names etcd, for so long.
func etcdAway(long time.Duration) saw {
	return func(w *World) { w.After = []Dependency{{Name: etcd, Known: true, Since: now - long}} }
}

// etcdBack: it names etcd no more.
func etcdBack(long time.Duration) saw {
	return func(w *World) { w.After = []Dependency{{Name: etcd, Known: true, Answers: true, Since: now - long}} }
}

// fromOneThatServed: the handoff is from a checkpoint that has been ready.
func fromOneThatServed() saw {
	return remembers(func(s *store.State) {
		s.Activation = &store.Activation{ID: "active", Generation: 7, BootID: boot, ServedBy: "ours"}
	})
}

// misspelt: no such workload is protected on this node.
func misspelt() saw {
	return func(w *World) { w.After = []Dependency{{Name: "kube-system/kube-apisever"}} }
}

// TestStartWaitsForDependencies: a start that is due waits, and not for ever.
func TestStartWaitsForDependencies(t *testing.T) {
	check(t, []row{
		{"after a reboot it waits for the API server", world(away(), unsynced(), parentDown(forever), free(29*time.Second)), Pending, ""},
		{"thirty seconds and no more", world(away(), unsynced(), parentDown(forever), free(30*time.Second)), Pending, "start 7"},
		{"it starts at once when the API server answers", world(back(0), unsynced(), parentDown(0), free(0)), Pending, "start 7"},
		{"also while the runtime is silent", world(away(), runtimeUnknown(), free(29*time.Second)), Pending, ""},
		{"which holds no start up for longer", world(away(), runtimeUnknown(), free(30*time.Second)), Pending, "start 7"},
		{"under a synced kubelet it counts from when the start was due", world(away(), parentDown(32*time.Second), free(32*time.Second)), Pending, ""},
		{"three seconds after the parent ended", world(away(), parentDown(33*time.Second), free(33*time.Second)), Pending, "start 7"},
		{"without a lock from the end of --activate-after", world(away(), withoutLock(), parentDown(59*time.Second), free(59*time.Second)), Pending, ""},
		{"and so it ends", world(away(), withoutLock(), parentDown(time.Minute), free(time.Minute)), Pending, "start 7"},
		{"a parent that runs without the lock has thirty seconds of its own", world(away(), parentLive(59*time.Second), free(59*time.Second)), Pending, ""},
		{"before the wait begins", world(away(), parentLive(time.Minute), free(time.Minute)), Pending, "start 7"},
		{"what nobody knows is waited for as long", world(misspelt(), unsynced(), parentDown(forever), free(29*time.Second)), Pending, ""},
		{"and no longer", world(misspelt(), unsynced(), parentDown(forever), free(30*time.Second)), Pending, "start 7"},
		{"a manifest that somebody took away is written at once", world(away(), heldByStale(), ready(forever)), Activating, "start 7"},
		{"so is the checkpoint's whose heir is gone", world(away(), handoff(2*time.Second), parentLive(forever), free(time.Second)), HandingOff, "start 7"},
		{"and one that a rollback needs", world(away(), rollingBack(), free(0), parentDown(0)), RollingBack, "start 7"},
	})
	d := Decide(world(away(), unsynced(), parentDown(0), free(0)), Defaults().limits())
	require.Equal(t, []string{"kube-system/kube-apiserver"}, d.WaitingForDependencies)
	require.Contains(t, d.Why, "waits-for=kube-system/kube-apiserver")
	require.Empty(t, Decide(world(back(0), heldByParent(), ready(0)), Defaults().limits()).WaitingForDependencies)
}

// TestADependencyExplains: what fails while the API server is away, or has just been,
// is no fault of its clients.
func TestADependencyExplains(t *testing.T) {
	check(t, []row{
		{"a candidate that is not in line is not given up", world(away(), manifest(forever)), Activating, ""},
		{"nor is one that ended three times before", world(away(), manifest(10*time.Second), exited(3)), Activating, ""},
		{"once it is back, the candidate has its whole time", world(back(59*time.Second), manifest(forever)), Activating, ""},
		{"and no more", world(back(time.Minute), manifest(forever)), Failing, "start 7"},
		{"exits that count still count", world(back(time.Second), manifest(forever), exited(3)), Failing, "start 7"},
		{"one that holds and is not ready is not given up", world(away(), manifest(forever), heldByCheckpoint(), unready(forever)), Activating, ""},
		{"nor does one that served give way to a parent that would do no better", world(away(), served(), heldByCheckpoint(), waits(Parent), unready(forever)), Serving, ""},
		{"until it had its time with the API server", world(back(59*time.Second), served(), heldByCheckpoint(), waits(Parent), unready(forever)), Serving, ""},
		{"then the parent gets its turn", world(back(time.Minute), served(), heldByCheckpoint(), waits(Parent), unready(forever)), Serving, "end the checkpoint for the parent"},
		{"a stale one is not ended", world(away(), manifest(10*time.Second), heldByStale(), unready(time.Minute)), Activating, ""},
		{"behind a stranger none is given up", world(away(), manifest(forever), heldByForeign(), waits(Parent)), Activating, ""},
		{"a checkpoint that is ready goes on: its parent could not show that it is well", world(away(), served(), heldByCheckpoint(), waits(Parent), ready(forever)), Serving, ""},
		{"and hands over when it can", world(back(0), served(), heldByCheckpoint(), waits(Parent), ready(forever)), Serving, "end the checkpoint for the parent"},

		{"a parent that took over may be unready", world(away(), taken(forever), heldByParent(), unready(forever)), HandingOff, ""},
		{"for the handoff's timeout after the API server is back", world(back(59*time.Second), taken(forever), heldByParent(), unready(forever)), HandingOff, ""},
		{"and no longer", world(back(time.Minute), taken(forever), heldByParent(), unready(forever)), RollingBack, "remember: the parent failed"},
		{"one that ended is not rolled back", world(away(), taken(time.Minute), parentDown(0), free(0)), HandingOff, "remember: the parent ended for want of a dependency"},
		{"nor if it ended a moment after", world(back(14*time.Second), taken(time.Minute), parentDown(0), free(0)), HandingOff, "remember: the parent ended for want of a dependency"},
		{"later it is", world(back(15*time.Second), taken(time.Minute), parentDown(0), free(0)), RollingBack, "start 7"},
		{"one that ended unseen is verified anew", world(away(), taken(time.Second), heldByAnotherContainer(), unready(0)), HandingOff, "remember: the parent took over"},
		{"unless the API server is long back", world(back(15*time.Second), taken(time.Second), heldByAnotherContainer(), unready(0)), RollingBack, "remember: the parent exited"},
		{"in a rollback the parent is not stopped", world(away(), rollingBack(), manifest(forever), heldByParent(), waits(Checkpoint), unready(forever)), RollingBack, ""},
		{"nor a moment after", world(back(14*time.Second), rollingBack(), manifest(forever), heldByParent(), waits(Checkpoint), unready(forever)), RollingBack, ""},
		{"later it is stopped", world(back(15*time.Second), rollingBack(), manifest(forever), heldByParent(), waits(Checkpoint), unready(forever)), RollingBack, "stop the parent"},

		{"a bad candidate is found out in time, whatever is away", world(lost(maxExcuse), manifest(10*time.Second), exited(3)), Failing, "start 7"},
		{"not a moment earlier", world(lost(maxExcuse-time.Millisecond), manifest(forever), exited(3)), Activating, ""},
		{"nor does one that is not in line stay", world(lost(maxExcuse), manifest(forever)), Failing, "start 7"},
		{"a checkpoint that is not ready makes way", world(lost(maxExcuse), served(), heldByCheckpoint(), waits(Parent), unready(forever)), Serving, "end the checkpoint for the parent"},
		{"so does one that is", world(lost(maxExcuse), served(), heldByCheckpoint(), waits(Parent), ready(forever)), Serving, "end the checkpoint for the parent"},
		{"a parent is rolled back", world(lost(maxExcuse), taken(forever), heldByParent(), unready(forever)), RollingBack, "remember: the parent failed"},
		{"and stopped", world(lost(maxExcuse), rollingBack(), manifest(forever), heldByParent(), waits(Checkpoint), unready(forever)), RollingBack, "stop the parent"},
		{"one that ends is, too", world(lost(maxExcuse), taken(time.Minute), parentDown(0), free(0)), RollingBack, "start 7"},

		{"what nobody knows explains nothing", world(misspelt(), manifest(forever)), Failing, "start 7"},
		{"nor excuses a parent", world(misspelt(), taken(time.Minute), heldByParent(), unready(time.Minute)), RollingBack, "remember: the parent failed"},
	})
}

// An heir that never took the lock is not held back where a dependency explains it.
func TestAnExcusedHeirIsNotHeldBack(t *testing.T) {
	state := remembered(t, Decide(world(away(), handoff(2*time.Second), parentLive(forever), free(time.Second)), Defaults().limits()))
	require.Equal(t, store.State{KnownGood: 7}, state)
	state = remembered(t, Decide(world(away(), taken(time.Second), parentDown(0), free(0)), Defaults().limits()))
	require.Equal(t, store.State{KnownGood: 7}, state)
}

// TestEtcdOfTheParentAlone: a parent that can't find the etcd on which the checkpoint was
// well until a moment ago has a fault of its own.
func TestEtcdOfTheParentAlone(t *testing.T) {
	check(t, []row{
		{"it has its time", world(fromOneThatServed(), taken(59*time.Second), heldByParent(), unready(time.Minute), etcdAway(58*time.Second)), HandingOff, ""},
		{"and no more", world(fromOneThatServed(), taken(time.Minute), heldByParent(), unready(time.Minute), etcdAway(58*time.Second)), RollingBack, "remember: the parent failed"},
		{"also if it finds etcd and is not ready", world(fromOneThatServed(), taken(time.Minute), heldByParent(), unready(time.Minute), etcdBack(10*time.Second)), RollingBack, "remember: the parent failed"},
		{"one that ends is rolled back at once", world(fromOneThatServed(), taken(20*time.Second), parentDown(0), free(0), etcdAway(19*time.Second)), RollingBack, "start 7"},
		{"also if it found etcd just before", world(fromOneThatServed(), taken(20*time.Second), parentDown(0), free(0), etcdBack(time.Second)), RollingBack, "start 7"},
		{"one that is to be rolled back is stopped", world(rollingBack(), manifest(10*time.Second), heldByParent(), waits(Checkpoint), unready(forever), etcdAway(time.Minute)), RollingBack, "stop the parent"},
		{"an etcd that was away before is no fault of the parent", world(fromOneThatServed(), taken(time.Minute), heldByParent(), unready(time.Minute), etcdAway(61*time.Second)), HandingOff, ""},
		{"nor is one that no checkpoint was seen to find", world(taken(time.Minute), heldByParent(), unready(time.Minute), etcdAway(58*time.Second)), HandingOff, ""},
		{"for as long as an outage explains anything", world(taken(forever), heldByParent(), unready(forever), etcdAway(maxExcuse)), RollingBack, "remember: the parent failed"},
		{"no start waits for an etcd of which only the API server can tell", world(etcdAway(time.Minute), unsynced(), parentDown(0), free(0)), Pending, "start 7"},
	})
	state := remembered(t, Decide(world(fromOneThatServed(), taken(20*time.Second), parentDown(0), free(0), etcdAway(19*time.Second)), Defaults().limits()))
	require.Equal(t, now+firstRollback, state.RetryAt)
	require.Equal(t, "parent-pod", state.FailedParent)
}
