package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLockExecIsAProgram(t *testing.T) {
	h := &Host{config: Config{BinDir: t.TempDir()}}
	path := filepath.Join(h.config.BinDir, "lock-exec")
	require.ErrorIs(t, h.LockExec(), os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.EqualError(t, h.LockExec(), path+" is no program")
	require.NoError(t, os.Chmod(path, 0o700))
	require.NoError(t, h.LockExec())
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o700))
	require.EqualError(t, h.LockExec(), path+" is no program")
}
