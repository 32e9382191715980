package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEarlierIsBuiltOfItsCommit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("without git there is no history: ", err)
	}
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b", "-C", root}, args...)...)
		out, err := cmd.Output()
		require.NoError(t, err, "git %q", args)
		return string(out[:max(0, len(out)-1)])
	}
	program := func(word string) {
		for _, name := range []string{"lock-exec", "pod-checkpointer"} {
			write("cmd/"+name+"/main.go", `package main

func main() { print("`+word+`") }
`)
		}
		git("add", ".")
		git("commit", "-q", "-m", word)
	}
	git("init", "-q")
	write("go.mod", "module m\n")
	write("manifests/rbac.yaml", "of then")
	program("then")
	commit := git("rev-parse", "HEAD")
	write("manifests/rbac.yaml", "of now")
	program("now")
	write("manifests/rbac.yaml", "of nobody")

	c := cache{t.TempDir()}
	got, err := earlier(t.Context(), c, root, commit)
	require.NoError(t, err)
	for _, path := range []string{got.LockExec, got.PodCheckpointer} {
		out, err := exec.Command(path).CombinedOutput()
		require.NoError(t, err)
		require.Equal(t, "then", string(out))
	}
	text, err := os.ReadFile(got.RBAC)
	require.NoError(t, err)
	require.Equal(t, "of then", string(text))

	// What was built once needs no history.
	again, err := earlier(t.Context(), c, t.TempDir(), commit)
	require.NoError(t, err)
	require.Equal(t, got, again)

	_, err = earlier(t.Context(), c, root, PreviousCommit)
	require.ErrorIs(t, err, ErrNoHistory)
}
