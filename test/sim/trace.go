package sim

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
)

// trace is what happened in a run, for whoever has to understand it. It is the
// daemon's log as well.
type trace struct {
	now   func() time.Duration
	out   io.Writer // nil: only kept
	lines []string
	last  time.Duration // when something happened
}

func (t *trace) say(format string, args ...any) {
	line := fmt.Sprintf("%8.1fs  ", t.now().Seconds()) + fmt.Sprintf(format, args...)
	t.lines, t.last = append(t.lines, line), t.now()
	if t.out != nil {
		fmt.Fprintln(t.out, line)
	}
}

// tail is the end of it.
func (t *trace) tail(n int) string {
	return strings.Join(t.lines[max(0, len(t.lines)-n):], "\n")
}

func (t *trace) Enabled(context.Context, slog.Level) bool { return true }
func (t *trace) WithAttrs([]slog.Attr) slog.Handler       { return t }
func (t *trace) WithGroup(string) slog.Handler            { return t }

func (t *trace) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	t.say("daemon: %s%s", r.Message, b.String())
	return nil
}
