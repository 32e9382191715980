//go:build e2e

package bench

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/lock"
	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
)

const (
	lockFile = "/run/lock/pod-checkpointer/kube-apiserver.lock"

	// A refused connection costs nobody anything. An answer is work for the API
	// server, some 2 ms of it while it starts: with one every 5 ms it would take
	// half as long again.
	pollFast   = 5 * time.Millisecond   // while nobody listens
	pollGentle = 25 * time.Millisecond  // while it starts, or somebody waits to take over
	pollSlow   = 100 * time.Millisecond // while nothing can happen
	pollFlight = 4                      // a new server lets its first requests hang; the next one must not wait for them
	pollLimit  = time.Second
	lockBeat   = 25 * time.Millisecond
)

// watch follows a lab's API server from outside: who answers, and who holds the
// lock.
type watch struct {
	lab   *lab.Lab
	path  string // of the lock, seen from here; "": there is none
	ended sync.WaitGroup
	stop  context.CancelFunc

	mu      sync.Mutex
	open    bool // the last connection was made
	answers []answer
	listens []time.Time // when a connection was made
	refused []time.Time // when an answer did not come, or was no 200
	turns   []turn
	waiters []lock.Process // now
}

// answer is a 200 of /readyz.
type answer struct{ asked, got time.Time }

// turn is a change of the lock's holder. A holder without a number is nobody.
type turn struct {
	at     time.Time
	holder lock.Process
}

// startWatch watches a node that has power, until close.
func startWatch(ctx context.Context, l *lab.Lab, locked bool) (*watch, error) {
	w := &watch{lab: l}
	if locked {
		path, err := l.NodePath(lockFile)
		if err != nil {
			return nil, err
		}
		w.path = path
	}
	ctx, w.stop = context.WithCancel(ctx)
	w.ended.Go(func() { w.poll(ctx) })
	if locked {
		w.ended.Go(func() { w.inspect(ctx) })
	}
	return w, nil
}

func (w *watch) close() {
	w.stop()
	w.ended.Wait()
}

// poll asks /readyz on new connections, a few at once.
func (w *watch) poll(ctx context.Context) {
	flight := make(chan struct{}, pollFlight)
	var asking sync.WaitGroup
	defer asking.Wait()
	tick := time.NewTicker(pollFast)
	defer tick.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if time.Since(last) < w.pace()-pollFast/2 {
			continue
		}
		select {
		case flight <- struct{}{}:
		default:
			continue
		}
		last = time.Now()
		asking.Go(func() {
			w.ask(ctx)
			<-flight
		})
	}
}

// pace is how often it is worth asking now.
func (w *watch) pace() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	answers := len(w.answers) > 0 && (len(w.refused) == 0 || w.refused[len(w.refused)-1].Before(w.answers[len(w.answers)-1].asked))
	switch {
	case !w.open:
		return pollFast
	case answers && len(w.waiters) == 0:
		return pollSlow
	}
	return pollGentle
}

// ask asks once.
func (w *watch) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pollLimit)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the time of an answer is asked for, not a secret
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := w.lab.Dial(ctx, network, address)
			w.note(func() {
				if w.open = err == nil; w.open {
					w.listens = append(w.listens, time.Now())
				}
			})
			return conn, err
		},
	}}
	asked := time.Now()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, lab.APIURL+"/readyz", nil)
	if err != nil {
		return // a constant is no URL
	}
	response, err := client.Do(request)
	got := time.Now()
	if err == nil {
		_ = response.Body.Close() // the status is all
	}
	if err == nil && response.StatusCode == http.StatusOK {
		w.note(func() { w.answers = append(w.answers, answer{asked, got}) })
		return
	}
	w.note(func() { w.refused = append(w.refused, got) })
}

// inspect follows the lock.
func (w *watch) inspect(ctx context.Context) {
	tick := time.NewTicker(lockBeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		state, err := lock.Inspect("/proc", w.path)
		if err != nil {
			continue // someone has just ended; the next beat tells
		}
		var holder lock.Process
		if state.Holder != nil {
			holder = *state.Holder
		}
		w.note(func() {
			w.waiters = state.Waiters
			if last := w.now(); last.PID != holder.PID || last.StartTime != holder.StartTime {
				w.turns = append(w.turns, turn{time.Now(), holder})
			}
		})
	}
}

func (w *watch) note(what func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	what()
}

// now is who holds the lock; the mutex must be held.
func (w *watch) now() lock.Process {
	if len(w.turns) == 0 {
		return lock.Process{}
	}
	return w.turns[len(w.turns)-1].holder
}

// answered waits for the first answer to a question put after that time.
func (w *watch) answered(ctx context.Context, after time.Time) (at time.Time, err error) {
	return at, awaitEvery(ctx, pollFast, patience, "the API server answers", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		i := slices.IndexFunc(w.answers, func(a answer) bool { return a.asked.After(after) })
		if i >= 0 {
			at = w.answers[i].got
		}
		return i >= 0
	})
}

// lastAnswer is the last one before that time.
func (w *watch) lastAnswer(before time.Time) (at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.answers {
		if a.got.Before(before) {
			at = a.got
		}
	}
	return at
}

// taken waits until another process than old, which may be nobody, holds the lock.
func (w *watch) taken(ctx context.Context, old lock.Process) (t turn, err error) {
	return t, awaitEvery(ctx, pollFast, patience, "the lock has another holder", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, t = range slices.Backward(w.turns) {
			if t.holder.PID == old.PID && t.holder.StartTime == old.StartTime {
				return false
			}
			if t.holder.PID != 0 {
				return true
			}
		}
		return false
	})
}

// holder is who holds the lock now.
func (w *watch) holder() lock.Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now()
}

// awaited waits until someone waits for the lock: in a pod, or on the node itself.
func (w *watch) awaited(ctx context.Context, inPod bool) error {
	return awaitEvery(ctx, pollFast, patience, "somebody waits for the lock", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.waiters, func(p lock.Process) bool { return (p.PodUID != "") == inPod })
	})
}

// listening is when the first connection was made after that time.
func (w *watch) listening(after time.Time) []point {
	return w.firstAfter("listens", &w.listens, after)
}

// closed is when the first answer did not come after that time.
func (w *watch) closed(after time.Time) []point {
	return w.firstAfter("refuses", &w.refused, after)
}

func (w *watch) firstAfter(name string, times *[]time.Time, after time.Time) []point {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range *times {
		if at.After(after) {
			return []point{{name, at}}
		}
	}
	return nil
}

// inOrder sorts points by time.
func inOrder(points ...[]point) []point {
	all := slices.Concat(points...)
	slices.SortStableFunc(all, func(a, b point) int { return a.at.Compare(b.at) })
	return all
}
