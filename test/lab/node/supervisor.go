package node

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Supervisor runs units and reaps every process that the node orphans. Its
// exported methods are served to the lab by net/rpc.
type Supervisor struct {
	delay time.Duration // before a unit with Restart runs again
	mu    sync.Mutex
	units map[string]*unit
}

type unit struct {
	Unit
	status Status
	gone   chan struct{} // closed when the running process has been reaped
}

func newSupervisor(delay time.Duration) *Supervisor {
	return &Supervisor{delay: delay, units: map[string]*unit{}}
}

// Start runs a unit. One of that name must not be running.
func (s *Supervisor) Start(u Unit, _ *struct{}) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.units[u.Name]
	if old != nil && old.status.PID != 0 {
		return fmt.Errorf("start %s: runs already as process %d", u.Name, old.status.PID)
	}
	next := &unit{Unit: u, status: Status{Name: u.Name}}
	if old != nil {
		next.status.Starts = old.status.Starts
	}
	if err := next.start(); err != nil {
		return fmt.Errorf("start %s: %w", u.Name, err)
	}
	s.units[u.Name] = next
	return nil
}

// Stop ends a unit and, with Wait, returns when it is gone.
func (s *Supervisor) Stop(stop Stop, _ *struct{}) error {
	s.mu.Lock()
	u := s.units[stop.Name]
	if u == nil {
		s.mu.Unlock()
		return fmt.Errorf("stop %s: no such unit", stop.Name)
	}
	if !stop.Keep {
		u.Restart = false
	}
	pid, gone := u.status.PID, u.gone
	if pid != 0 {
		// Not reaped yet, so that the number can't be another process's.
		_ = unix.Kill(pid, stop.Signal)
	}
	s.mu.Unlock()
	if pid == 0 || stop.Wait == 0 {
		return nil
	}
	select {
	case <-gone:
		return nil
	case <-time.After(stop.Wait):
	}
	s.mu.Lock()
	if u.status.PID == pid {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	s.mu.Unlock()
	<-gone
	return nil
}

// List tells of every unit that was ever started, by name.
func (s *Supervisor) List(_ struct{}, out *[]Status) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.units {
		*out = append(*out, u.status)
	}
	sort.Slice(*out, func(i, j int) bool { return (*out)[i].Name < (*out)[j].Name })
	return nil
}

func (u *unit) start() error {
	log, err := os.OpenFile(u.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	pid, err := syscall.ForkExec(u.Argv[0], u.Argv, &syscall.ProcAttr{
		Dir: "/", Env: u.Env,
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("run %s: %w", u.Argv[0], err)
	}
	u.status.PID, u.status.Started, u.gone = pid, time.Now(), make(chan struct{})
	u.status.Starts++
	return nil
}

// reap collects the dead for as long as the node lives. One loop waits for
// every child, adopted or own, so that none is waited for twice.
func (s *Supervisor) reap() {
	child := make(chan os.Signal, 1)
	signal.Notify(child, unix.SIGCHLD)
	for range child {
		for s.reapOne() {
		}
	}
}

func (s *Supervisor) reapOne() bool {
	s.mu.Lock() // or else a unit could end before Start has noted its number
	defer s.mu.Unlock()
	var status unix.WaitStatus
	pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
	if errors.Is(err, unix.EINTR) {
		return true
	}
	if err != nil || pid == 0 {
		return false
	}
	for _, u := range s.units {
		if u.status.PID != pid {
			continue
		}
		u.status.PID, u.status.Exited, u.status.Exit = 0, time.Now(), how(status)
		close(u.gone)
		if u.Restart {
			time.AfterFunc(s.delay, func() { s.again(u) })
		}
	}
	return true
}

func (s *Supervisor) again(u *unit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !u.Restart || s.units[u.Name] != u || u.status.PID != 0 {
		return
	}
	if err := u.start(); err != nil {
		u.status.Exit = err.Error()
	}
}

func how(status unix.WaitStatus) string {
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit %d", status.ExitStatus())
}
