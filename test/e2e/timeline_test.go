//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// timeline is what happened in one scenario.
type timeline struct {
	live bool // each line is printed as it comes, and not once more at the end

	mu    sync.Mutex
	title string
	begun time.Time
	cut   time.Time // the last power cut; zero: none yet
	lines []line
}

type line struct {
	at, cut time.Time
	what    string
}

// begin starts over, for a new scenario.
func (t *timeline) begin(title string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.title, t.begun, t.cut, t.lines = title, time.Now(), time.Time{}, nil
	if t.live {
		t.head(os.Stdout)
	}
}

// powerCut is the instant from which the second column counts.
func (t *timeline) powerCut() {
	t.mu.Lock()
	t.cut = time.Now()
	at := t.cut
	t.mu.Unlock()
	t.add(at, "power cut")
}

// add says that something happened, now or a little earlier.
func (t *timeline) add(at time.Time, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := line{at: at, cut: t.cut, what: fmt.Sprintf(format, args...)}
	t.lines = append(t.lines, l)
	if t.live && !t.begun.IsZero() {
		t.row(os.Stdout, l)
	}
}

// last is when that line was last added; false if it never was.
func (t *timeline) last(what string) (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range slices.Backward(t.lines) {
		if l.what == what {
			return l.at, true
		}
	}
	return time.Time{}, false
}

// print is the whole of it as a table, in the order of time.
func (t *timeline) print(out io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live {
		return
	}
	slices.SortStableFunc(t.lines, func(a, b line) int { return a.at.Compare(b.at) })
	t.head(out)
	for _, l := range t.lines {
		t.row(out, l)
	}
}

func (t *timeline) head(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n%9s %9s\n", t.title, "s", "since cut")
}

func (t *timeline) row(out io.Writer, l line) {
	sinceCut := ""
	if !l.cut.IsZero() {
		sinceCut = fmt.Sprintf("%.2f", l.at.Sub(l.cut).Seconds())
	}
	fmt.Fprintf(out, "%9.2f %9s  %s\n", l.at.Sub(t.begun).Seconds(), sinceCut, l.what)
}
