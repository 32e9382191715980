//go:build e2e

package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// line is one that the daemon has logged.
type line struct {
	Time time.Time `json:"time"`
	Msg  string    `json:"msg"`
	Pod  string    `json:"pod"` // the workload; "": it tells of the daemon itself
	Took string    `json:"took"`
}

// story is what the daemon has logged, oldest line first.
type story []line

// readStory reads files of the daemon's log, as it writes them or as the
// runtime does, which puts its own words before each line.
func readStory(pattern string) (story, error) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	var all story
	var errs []error
	for _, file := range files {
		data, err := os.ReadFile(file)
		errs = append(errs, err)
		for text := range bytes.Lines(data) {
			_, object, found := bytes.Cut(text, []byte("{"))
			var l line
			if found && json.Unmarshal(append([]byte("{"), object...), &l) == nil {
				all = append(all, l)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b line) int { return a.Time.Compare(b.Time) }) // of both copies
	return all, errors.Join(errs...)
}

// first is when a line that begins so was first logged at or after that time.
func (s story) first(after time.Time, prefix string) (time.Time, bool) {
	for _, l := range s {
		if !l.Time.Before(after) && strings.HasPrefix(l.Msg, prefix) {
			return l.Time, true
		}
	}
	return time.Time{}, false
}

// since are the points of the named lines at or after that time, as far as they
// were logged.
func (s story) since(after time.Time, prefixes ...string) []point {
	var points []point
	for _, prefix := range prefixes {
		if at, ok := s.first(after, prefix); ok {
			points = append(points, point{prefix, at})
		}
	}
	return points
}

// began is when the daemon's process was in its main, as it says once it has started.
func (s story) began(after time.Time) (time.Time, bool) {
	for _, l := range s {
		if took, err := time.ParseDuration(l.Took); err == nil && l.Msg == "leading" && !l.Time.Before(after) {
			return l.Time.Add(-took), true
		}
	}
	return time.Time{}, false
}
