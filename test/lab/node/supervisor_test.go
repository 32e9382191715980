package node

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain is the parent of every process that a test starts, and reaps them
// as process 1 does: all tests share one supervisor.
func TestMain(m *testing.M) {
	go shared.reap()
	os.Exit(m.Run())
}

var shared = newSupervisor(time.Millisecond)

func status(t *testing.T, name string) Status {
	t.Helper()
	var all []Status
	require.NoError(t, shared.List(struct{}{}, &all))
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no unit %s", name)
	return Status{}
}

func start(t *testing.T, u Unit) {
	t.Helper()
	u.Log = filepath.Join(t.TempDir(), "log")
	require.NoError(t, shared.Start(u, nil))
}

func TestUnitIsReapedAndItsOutputKept(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	require.NoError(t, shared.Start(Unit{Name: "once", Argv: []string{"/bin/sh", "-c", "echo $WORD; exit 3"}, Env: []string{"WORD=hello"}, Log: log}, nil))
	require.Eventually(t, func() bool { return status(t, "once").PID == 0 }, 10*time.Second, time.Millisecond)
	require.Equal(t, "exit 3", status(t, "once").Exit)
	data, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, "hello\n", string(data))
}

func TestStopReturnsWhenTheUnitIsGone(t *testing.T) {
	start(t, Unit{Name: "sleeper", Argv: []string{"/bin/sleep", "1000"}, Restart: true})
	require.Error(t, shared.Start(Unit{Name: "sleeper"}, nil), "it runs")
	require.NoError(t, shared.Stop(Stop{Name: "sleeper", Signal: syscall.SIGTERM, Wait: 10 * time.Second}, nil))
	s := status(t, "sleeper")
	require.Zero(t, s.PID)
	require.Equal(t, "signal terminated", s.Exit)
	require.NoError(t, shared.Stop(Stop{Name: "sleeper", Signal: syscall.SIGTERM, Wait: time.Second}, nil), "it is gone already")
	require.Error(t, shared.Stop(Stop{Name: "nobody"}, nil))
}

func TestStopKillsWhoDoesNotListen(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	start(t, Unit{Name: "deaf", Argv: []string{"/bin/sh", "-c", "trap '' TERM; : > " + ready + "; while :; do sleep 1000; done"}, Env: []string{"PATH=/bin:/usr/bin"}})
	require.Eventually(t, func() bool { _, err := os.Stat(ready); return err == nil }, 10*time.Second, time.Millisecond)
	require.NoError(t, shared.Stop(Stop{Name: "deaf", Signal: syscall.SIGTERM, Wait: 10 * time.Millisecond}, nil))
	require.Equal(t, "signal killed", status(t, "deaf").Exit)
}

func TestUnitIsRestartedUntilStop(t *testing.T) {
	start(t, Unit{Name: "again", Argv: []string{"/bin/true"}, Restart: true})
	require.Eventually(t, func() bool { return status(t, "again").Starts >= 3 }, 10*time.Second, time.Millisecond)
	require.NoError(t, shared.Stop(Stop{Name: "again", Signal: syscall.SIGKILL, Wait: time.Second}, nil))
	starts := status(t, "again").Starts
	start(t, Unit{Name: "again", Argv: []string{"/bin/true"}})
	require.Eventually(t, func() bool { return status(t, "again").PID == 0 }, 10*time.Second, time.Millisecond)
	require.Equal(t, starts+1, status(t, "again").Starts, "counted over all of its starts")
}

func TestProgramThatIsAbsentIsAnError(t *testing.T) {
	err := shared.Start(Unit{Name: "absent", Argv: []string{"/nowhere/program"}, Log: filepath.Join(t.TempDir(), "log")}, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestPlanIsReadAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	p := Plan{Hostname: "n1", BootID: "b", Binds: []Bind{{From: "/a", To: "/b", ReadOnly: true}}}
	require.NoError(t, p.Write(path))
	got, err := ReadPlan(path)
	require.NoError(t, err)
	require.Equal(t, p, got)
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = ReadPlan(path)
	require.ErrorContains(t, err, path)
}
