// Package expand replaces $(NAME) in a text as a kubelet does in the environment, the
// command and the arguments of a container. What the snapshot leaves to lock-exec, and
// what lock-exec makes of it, is one language.
//
// It is that of k8s.io/kubernetes v1.37.2, third_party/forked/golang/expansion, which
// is the same in v1.34: $$ is $, a value is not expanded again, and $(NAME) stays where
// there is no such variable.
package expand

import (
	"strings"
	"unicode/utf8"
)

// Part is a stretch of a text.
type Part struct {
	Text string // as it is to come out, or the name
	Name bool   // $(Text) stood there
}

// String is what a part becomes where nobody knows a value for it.
func (p Part) String() string {
	if p.Name {
		return "$(" + p.Text + ")"
	}
	return p.Text
}

// Parts takes a text apart.
func Parts(text string) []Part {
	var parts []Part
	plain := func(s string) {
		if last := len(parts) - 1; last >= 0 && !parts[last].Name {
			parts[last].Text += s
		} else if s != "" {
			parts = append(parts, Part{Text: s})
		}
	}
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i == len(text)-1 {
			plain(text)
			return parts
		}
		plain(text[:i])
		text = text[i+1:]
		name, after, closed := strings.Cut(text, ")")
		switch first, size := utf8.DecodeRuneInString(text); {
		case first == '(' && closed:
			parts = append(parts, Part{Text: name[1:], Name: true})
			text = after
		case first == '$':
			plain("$")
			text = text[size:]
		default:
			plain("$" + string(first)) // a byte that is no UTF-8 comes out as U+FFFD
			text = text[size:]
		}
	}
}

// Text replaces each $(NAME) by what value tells; where it tells none, $(NAME) stays.
func Text(text string, value func(name string) (string, bool)) string {
	var b strings.Builder
	for _, p := range Parts(text) {
		out := p.String()
		if p.Name {
			if v, ok := value(p.Text); ok {
				out = v
			}
		}
		b.WriteString(out)
	}
	return b.String()
}

// Escape returns a text of which Text makes this one.
func Escape(text string) string { return strings.ReplaceAll(text, "$", "$$") }
