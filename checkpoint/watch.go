package checkpoint

import "time"

// watch remembers since when something is so. It is the only memory that spans
// passes; once lost, everything is as if seen for the first time, which makes
// each deadline later and none earlier.
type watch struct {
	now   time.Duration
	marks map[string]*mark
	exits map[string]*exits
}

type mark struct {
	value string
	since time.Duration
	seen  time.Duration
}

type exits struct {
	total int             // container attempts that have ended, by the runtime's count
	at    []time.Duration // when we saw each of the recent ones
}

// exitWindow is how long an exit counts.
const exitWindow = 10 * time.Minute

func newWatch() *watch {
	return &watch{marks: map[string]*mark{}, exits: map[string]*exits{}}
}

// begin starts a pass and forgets what the last one did not ask for.
func (w *watch) begin(now time.Duration) {
	for key, m := range w.marks {
		if m.seen != w.now {
			delete(w.marks, key)
		}
	}
	w.now = now
}

// since is when key took this value.
func (w *watch) since(key, value string) time.Duration {
	m, ok := w.marks[key]
	if !ok || m.value != value {
		m = &mark{value: value, since: w.now}
		w.marks[key] = m
	}
	m.seen = w.now
	return m.since
}

// ended counts the exits of one activation's container within the window.
// total is the runtime's own count; all of them are recent where fresh says
// that the activation began in this boot and never served.
func (w *watch) ended(activation string, total int, fresh bool) int {
	e, ok := w.exits[activation]
	if !ok {
		e = &exits{total: total}
		if fresh {
			e.total = 0
		}
		w.exits[activation] = e
	}
	for ; e.total < total; e.total++ {
		e.at = append(e.at, w.now)
	}
	recent := e.at[:0]
	for _, at := range e.at {
		if w.now-at < exitWindow {
			recent = append(recent, at)
		}
	}
	e.at = recent
	return len(e.at)
}

// keep forgets the exits of every activation but those named.
func (w *watch) keep(activations map[string]bool) {
	for id := range w.exits {
		if !activations[id] {
			delete(w.exits, id)
		}
	}
}
