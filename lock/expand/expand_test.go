package expand

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func known(name string) (string, bool) {
	value, ok := map[string]string{"A": "a", "B": "$(A)$$", "": "empty", "$": "dollar"}[name]
	return value, ok
}

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":             "",
		"plain":        "plain",
		"$(A)":         "a",
		"x$(A)y$(A)z":  "xayaz",
		"$(B)":         "$(A)$$", // not again
		"$(NONE)":      "$(NONE)",
		"$$(A)":        "$(A)",
		"$$$(A)":       "$a",
		"$$$$":         "$$",
		"$":            "$",
		"a$":           "a$",
		"$(A":          "$(A",
		"$($(A)":       "$($(A)", // a name is all up to the next )
		"$()":          "empty",
		"$($)":         "dollar",
		"$HOME $5 $é":  "$HOME $5 $é",
		"$\xff$(A)":    "$\uFFFDa",
		"\xff$(A)\xff": "\xffa\xff",
	} {
		assert.Equal(t, want, Text(text, known), "%q", text)
	}
}

func TestEscapedTextIsItself(t *testing.T) {
	for _, text := range []string{"", "$", "$$", "$(A)", "$$(A)", "$\xff", "\xff", "$("} {
		assert.Equal(t, text, Text(Escape(text), known), "%q", text)
	}
}

func TestPartsAreNamesAndTheTextBetween(t *testing.T) {
	assert.Equal(t, []Part{{Text: "a$"}, {Text: "B", Name: true}, {Text: "C", Name: true}, {Text: "$(d"}}, Parts("a$$$(B)$(C)$(d"))
	assert.Empty(t, Parts(""))
}
