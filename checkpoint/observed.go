package checkpoint

import "fmt"

// Observed is what one source said. The zero value is Unknown: a source that
// did not answer is never proof of anything.
type Observed[T any] struct {
	known bool
	value T
	why   string // of Unknown: "cri: deadline exceeded"
}

// Known is an answer.
func Known[T any](value T) Observed[T] {
	return Observed[T]{known: true, value: value}
}

// Unknown is the want of an answer, with its reason.
func Unknown[T any](format string, args ...any) Observed[T] {
	return Observed[T]{why: fmt.Sprintf(format, args...)}
}

// Value returns the answer, and whether there is one.
func (o Observed[T]) Value() (T, bool) { return o.value, o.known }

// Why returns the reason of an Unknown, "" of a Known.
func (o Observed[T]) Why() string {
	if !o.known && o.why == "" {
		return "not asked yet"
	}
	return o.why // which a Known has none of
}

// told is whether there is an answer, and why not.
func told[T any](o Observed[T]) (why string, known bool) { return o.Why(), o.known }

// from turns the answer of a client into an observation.
func from[T any](value T, err error) Observed[T] {
	if err != nil {
		return Observed[T]{why: err.Error()}
	}
	return Known(value)
}
