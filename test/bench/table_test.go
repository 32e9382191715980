package bench

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestMedian(t *testing.T) {
	assert.Equal(t, 3.0, median([]float64{9, 1, 3}))
	assert.Equal(t, 2.5, median([]float64{9, 2, 1, 3}))
}

func TestMean(t *testing.T) {
	assert.Equal(t, 4.0, mean([]float64{9, 1, 2}))
}

func TestTableNamesWhatWasMissed(t *testing.T) {
	begin := time.Unix(0, 0)
	run := func(s *series, total time.Duration) {
		s.add(begin, begin.Add(total), point{"half", begin.Add(total / 2)})
	}
	kept := row{series: series{what: "kept", unit: milliseconds}, limit: new(150.0)}
	run(&kept.series, 150*time.Millisecond)
	slow := row{series: series{what: "slow", unit: seconds}, limit: new(1.25), peer: &series{what: "peer", unit: seconds}}
	for _, n := range []time.Duration{4, 2, 3} {
		run(&slow.series, n*time.Second)
		run(slow.peer, 2*time.Second)
	}
	read := row{series: series{what: "read only", unit: mebibytes, values: []float64{1e6}}}
	nothing := row{series: series{what: "nothing", unit: each, values: []float64{0, 0}}, limit: new(0.0), of: mean}
	worst := row{series: series{what: "worst", unit: percent, values: []float64{1, 3, 2}}, limit: new(2.0), of: slices.Max[[]float64]}

	var all table
	for _, r := range []row{kept, slow, read, nothing, worst, {series: series{what: "not measured"}, limit: new(1.0)}} {
		all.add(r)
	}
	var out strings.Builder
	all.print(&out, false)
	text := strings.Join(strings.Fields(out.String()), " ")
	assert.Contains(t, text, "kept 150.0 ms 150.0 ms 150.0 ms 150.0 ms 150.0 ms 1 reached slow")
	assert.Contains(t, text, "slow 1.25 x 1.50 x 3.00 s 2.00 s 4.00 s 3 missed against peer 2.00 s")
	assert.Contains(t, text, "slow: where the time went (medians) 1500.0 ms + 1500.0 half 3000.0 ms + 1500.0 end")
	assert.Contains(t, text, "read only 1000000.0 MiB 1000000.0 MiB 1000000.0 MiB 1 nothing", "no limit, no verdict")
	assert.Contains(t, text, "nothing 0 0 0 0 0 2 reached")
	assert.Contains(t, text, "worst 2.000 % 3.000 % 2.000 % 1.000 % 3.000 % 3 missed")
	assert.NotContains(t, text, "kept: where")
	assert.NotContains(t, text, "not measured")
	assert.Equal(t, 2, strings.Count(text, "missed"))
}
