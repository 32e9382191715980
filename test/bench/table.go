package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// unit is what a row's values are in, and how they are written.
type unit string

const (
	milliseconds unit = "%.1f ms"
	seconds      unit = "%.2f s"
	mebibytes    unit = "%.1f MiB"
	megabytes    unit = "%.2f MB"
	bytesWritten unit = "%.0f B"
	percent      unit = "%.3f %%"
	each         unit = "%.0f"
	perMinute    unit = "%.1f/min"
	factor       unit = "%.2f x"
)

func (u unit) of(value float64) string { return fmt.Sprintf(string(u), value) }

// duration is d in u, which is one of time.
func (u unit) duration(d time.Duration) float64 {
	if u == milliseconds {
		return float64(d) / float64(time.Millisecond)
	}
	return d.Seconds()
}

// series are the values of one thing, one a run, and where the time of each went.
type series struct {
	what   string
	unit   unit
	values []float64
	stages stages
}

// add adds a run, and the points that it came past in their order.
func (s *series) add(begin, end time.Time, points ...point) {
	for _, p := range append(points, point{"end", end}) {
		s.stages.add(p.name, p.at.Sub(begin))
	}
	s.values = append(s.values, s.unit.duration(end.Sub(begin)))
}

// point is something that a run comes past.
type point struct {
	name string
	at   time.Time
}

// stages are the points that runs come past, and when. Not every run need be seen
// at each.
type stages struct {
	names []string
	at    map[string][]float64 // seconds since the run began
}

func (s *stages) add(name string, at time.Duration) {
	if !slices.Contains(s.names, name) {
		s.names = append(s.names, name)
	}
	if s.at == nil {
		s.at = map[string][]float64{}
	}
	s.at[name] = append(s.at[name], at.Seconds())
}

// row is a series and what it must not exceed: a value in its unit or, where
// there is a peer, a multiple of that. Without a limit it is there to be read.
type row struct {
	series
	limit *float64
	peer  *series
	of    func(values []float64) float64 // what of the values is the result; nil: their median
}

// result is what the limit is for, and its unit.
func (r row) result() (float64, unit) {
	of := r.of
	if of == nil {
		of = median
	}
	if r.peer == nil {
		return of(r.values), r.unit
	}
	return of(r.values) / of(r.peer.values), factor
}

func (r row) missed() bool {
	result, _ := r.result()
	return r.limit != nil && result > *r.limit
}

// table is what TestBench prints.
type table struct {
	machine []string
	rows    []row
}

// add adds a row, unless nothing was measured.
func (t *table) add(r row) {
	if len(r.values) > 0 && (r.peer == nil || len(r.peer.values) > 0) {
		t.rows = append(t.rows, r)
	}
}

// print writes the table, and the stages of what was missed, or of every row.
func (t *table) print(w io.Writer, every bool) {
	for _, line := range t.machine {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "WHAT\tLIMIT\tRESULT\tMEDIAN\tMIN\tMAX\tRUNS\t")
	for _, r := range t.rows {
		limit, result, verdict := "", "", ""
		if r.limit != nil {
			value, u := r.result()
			limit, result, verdict = u.of(*r.limit), u.of(value), "reached"
		}
		if r.missed() {
			verdict = "missed"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\n", r.what, limit, result, r.numbers(), verdict)
		if r.peer != nil {
			fmt.Fprintf(out, "  against %s\t\t\t%s\t\n", r.peer.what, r.peer.numbers())
		}
	}
	_ = out.Flush() // w says it too, at the next write
	for _, r := range t.rows {
		if r.missed() || every {
			r.series.printStages(w)
			if r.peer != nil {
				r.peer.printStages(w)
			}
		}
	}
}

func (s *series) numbers() string {
	return fmt.Sprintf("%s\t%s\t%s\t%d", s.unit.of(median(s.values)), s.unit.of(slices.Min(s.values)), s.unit.of(slices.Max(s.values)), len(s.values))
}

// printStages writes the median time at which the runs came past each point, in
// the order of those times, and how long that was after the one before.
func (s *series) printStages(w io.Writer) {
	if len(s.stages.names) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s: where the time went (medians)\n", s.what)
	before := 0.0
	at := func(name string) float64 { return median(s.stages.at[name]) }
	for _, name := range slices.SortedStableFunc(slices.Values(s.stages.names), func(a, b string) int { return cmp.Compare(at(a), at(b)) }) {
		at := at(name)
		fmt.Fprintf(w, "%9.1f ms  +%8.1f  %s\n", at*1000, (at-before)*1000, name)
		before = at
	}
}

// mean is for what counts by its sum.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// median is the middle one, of an even number the mean of the middle two.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
