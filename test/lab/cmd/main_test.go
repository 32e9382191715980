package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExitCodesTellWhatWentWrong(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, tt := range []struct {
		args []string
		want int
	}{
		{[]string{"--help"}, 0},
		{[]string{"up", "--help"}, 0},
		{[]string{"bogus"}, 2},
		{[]string{"up", "--bogus"}, 2},
		{[]string{"reboot", "now"}, 2},
		{[]string{"exec"}, 2},
		{[]string{"up", "--grace=1500ms"}, 2},
		{[]string{"up", "--kubernetes=v1.2.3"}, 2},
		{[]string{"up", "--containerd=1"}, 2},
		{[]string{"status", "--name=UP"}, 2},
		{[]string{"--name=UP", "kubectl", "get", "pods"}, 2},
		{[]string{"status"}, 3},
		{[]string{"reboot"}, 3},
		{[]string{"kubectl", "get", "pods"}, 3},
	} {
		require.Equal(t, tt.want, run(t.Context(), tt.args), "%q", tt.args)
	}
}

func TestEveryCommandShowsAnExample(t *testing.T) {
	for _, c := range rootCommand().Commands() {
		if c.Name() != "help" {
			require.NotEmpty(t, c.Example, c.Name())
		}
	}
}
