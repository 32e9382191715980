package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// makeWay waits until another copy has the lock: the kernel has woken it, but
// whoever asks for the lock before it has come so far would get it.
func (d *daemon) makeWay(ctx context.Context) {
	d.follow()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		state, err := lock.Inspect(d.config.Proc, store.LockPath(d.config.StateDir))
		if err == nil && state.Holder != nil {
			return
		}
		pause(ctx, 5*time.Millisecond)
	}
}

// follow says that another copy leads.
func (d *daemon) follow() {
	lacked := ""
	if d.lacked != nil {
		lacked = d.lacked.Error()
	}
	d.health.Follows(func() string { return checkpoint.Leader(d.config) }, lacked)
}

// unfit is the error of a copy that had its turn and could not lead, while another one
// may. A leader would make way for it again and again; so it ends, the kubelet
// restarts it ever later, and the rollout that brought it stands.
type unfit struct{ error }

func (e unfit) Unwrap() error { return e.error }

// ends is unfit, or nil while another try may be of use to this copy.
func (d *daemon) ends(tries int) error {
	if d.lacked == nil || errors.Is(d.lacked, syscall.EIO) && tries < patience {
		return nil
	}
	return unfit{fmt.Errorf("this copy of the daemon can't lead, and leaves it to the other one: %w", d.lacked)}
}

// open waits for this copy's turn and opens the store. It tries until it succeeds,
// or ctx ends, or it is unfit, which are errors: a disk that is full or read-only, or
// a state directory that is not mounted yet, may come back without our restart. The
// lock is given back between two tries, since another copy may be able to read what
// this one is not.
func (d *daemon) open(ctx context.Context) (*store.Store, *store.Lock, error) {
	said := ""
	for tries := 1; ; tries++ {
		disk, writer, err := d.tryOpen(ctx, tries)
		if err == nil || ctx.Err() != nil || errors.As(err, new(unfit)) {
			return disk, writer, err
		}
		d.health.Lacks(err.Error())
		if said != err.Error() {
			said = err.Error()
			d.log.Error("waiting for what the daemon needs", "path", d.config.StateDir, "err", err)
		}
		pause(ctx, d.config.Poll)
	}
}

// patience is how many tries an unreadable disk gets before what it can't give is
// taken for lost.
const patience = 5

func (d *daemon) tryOpen(ctx context.Context, tries int) (*store.Store, *store.Lock, error) {
	c := d.config
	if c.DryRun {
		disk, err := look(c)
		return disk, nil, err
	}
	if _, err := durable.Create(c.StateDir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("open --state-dir: %w", err)
	}
	writer, err := d.await(ctx, tries)
	if err != nil {
		return nil, nil, err
	}
	disk, err := openStore(c, tries)
	if d.lacked = err; err == nil {
		return disk, writer, nil
	}
	defer writer.Release()
	if end := d.ends(tries); end != nil && d.contested() {
		return nil, nil, end
	}
	return nil, nil, err
}

// contested tells whether another copy waits for the lock, which this one holds.
func (d *daemon) contested() bool {
	state, err := lock.Inspect(d.config.Proc, store.LockPath(d.config.StateDir))
	return err == nil && len(state.Waiters) > 0
}

// await blocks until this copy has the writer's lock, or ctx ends, or another copy has
// it and this one is unfit. When ctx ends the wait itself goes on, for nothing ends it
// but the end of the process, which is near.
func (d *daemon) await(ctx context.Context, tries int) (*store.Lock, error) {
	writer, err := store.TryLock(d.config.StateDir)
	if !errors.Is(err, store.ErrLocked) {
		return writer, err
	}
	if end := d.ends(tries - 1); end != nil {
		return nil, end
	}
	d.follow()
	d.log.Info("waiting for the lead", "why", checkpoint.Leader(d.config))
	checkpoint.LetGo() // it may wait for months
	got, failed := make(chan *store.Lock), make(chan error, 1)
	go func() {
		writer, err := store.AwaitLock(d.config.StateDir)
		if err != nil {
			failed <- err
			return
		}
		select {
		case got <- writer:
		case <-ctx.Done():
			writer.Release()
		}
	}()
	defer func() { d.turn = time.Now() }()
	select {
	case writer := <-got:
		return writer, nil
	case err := <-failed:
		return nil, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
