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
	seen  time.Duration
}

// exitWindow is how long an exit counts.
const exitWindow = 10 * time.Minute

func newWatch() *watch {
	return &watch{marks: map[string]*mark{}, exits: map[string]*exits{}}
}

// begin starts a pass and forgets what the last one did not ask for: it may have
// changed and come back. An exit did happen, and counts for as long as any, also
// where the runtime did not answer in between.
func (w *watch) begin(now time.Duration) {
	for key, m := range w.marks {
		if m.seen != w.now {
			delete(w.marks, key)
		}
	}
	for key, e := range w.exits {
		if now-e.seen >= exitWindow {
			delete(w.exits, key)
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

// value is what key had last, if it has a value.
func (w *watch) value(key string) (value string, ok bool) {
	if m := w.marks[key]; m != nil {
		return m.value, true
	}
	return "", false
}

// ended counts the exits of the container that key names within the window.
// total is the runtime's own count; all of them are recent where fresh says
// that it began in this boot and never served. Those that are seen while they
// are excused never count.
func (w *watch) ended(key string, total int, fresh, excused bool) int {
	e, ok := w.exits[key]
	if !ok {
		e = &exits{total: total}
		if fresh {
			e.total = 0
		}
		w.exits[key] = e
	}
	e.seen = w.now
	if excused {
		e.total = max(e.total, total)
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
