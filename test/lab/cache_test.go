package lab

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCacheMakesAFolderOnce(t *testing.T) {
	c := cache{t.TempDir()}
	var fills atomic.Int32
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			dir, err := c.get(t.Context(), "kind", "key", func(dir string) error {
				fills.Add(1)
				return os.WriteFile(filepath.Join(dir, "made"), nil, 0o600)
			})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := os.Stat(filepath.Join(dir, "made")); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	require.Equal(t, int32(1), fills.Load())
}

func TestCacheKeepsNothingHalf(t *testing.T) {
	c := cache{t.TempDir()}
	broken := errors.New("broken")
	_, err := c.get(t.Context(), "kind", "key", func(dir string) error {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "half"), nil, 0o600))
		return broken
	})
	require.ErrorIs(t, err, broken)
	require.False(t, c.has("kind", "key"))

	// One that was killed leaves its part.
	require.NoError(t, os.MkdirAll(filepath.Join(c.path("kind", "key")+".part", "half"), 0o700))
	dir, err := c.get(t.Context(), "kind", "key", func(string) error { return nil })
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestKeysTellWordsApart(t *testing.T) {
	require.Equal(t, keyOf("a", "b"), keyOf("a", "b"))
	require.NotEqual(t, keyOf("a", "b"), keyOf("ab"))
	require.NotEqual(t, keyOf("a", "b"), keyOf(`a" "b`))
}

func TestCloneLinksOnlyWhatNobodyChanges(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	large := make([]byte, 2<<20)
	require.NoError(t, os.Mkdir(filepath.Join(from, "dir"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(from, "dir", "blob"), large, 0o640))
	require.NoError(t, os.WriteFile(filepath.Join(from, "meta.db"), large, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(from, "small"), []byte("x"), 0o755))
	require.NoError(t, os.Symlink("small", filepath.Join(from, "link")))
	require.NoError(t, cloneTree(from, to))

	same := func(name string) bool {
		a, err := os.Stat(filepath.Join(from, name))
		require.NoError(t, err)
		b, err := os.Stat(filepath.Join(to, name))
		require.NoError(t, err)
		require.Equal(t, a.Mode(), b.Mode(), name)
		require.Equal(t, a.IsDir() || a.Size() == b.Size(), true, name)
		return os.SameFile(a, b)
	}
	require.True(t, same("dir/blob"))
	require.False(t, same("meta.db"), "a database is written in place")
	require.False(t, same("small"))
	require.False(t, same("dir"))
	link, err := os.Readlink(filepath.Join(to, "link"))
	require.NoError(t, err)
	require.Equal(t, "small", link)
}
