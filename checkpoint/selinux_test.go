package checkpoint

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLabelIsForHostsWithSELinux(t *testing.T) {
	for _, tt := range []struct{ name, filesystems, want string }{
		{"enabled", "nodev\tsysfs\nnodev\tsecurityfs\nnodev\tselinuxfs\n\text4\n", "system_u:object_r:container_file_t:s0"},
		{"not there", "nodev\tsysfs\nnodev\tsecurityfs\n\text4\n", ""},
		{"another name", "nodev\tselinuxfs2\n\tmy-selinuxfs\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proc := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(proc, "filesystems"), []byte(tt.filesystems), 0o600))
			label, err := SELinuxLabel(proc)
			require.NoError(t, err)
			assert.Equal(t, tt.want, label)
		})
	}
	label, err := SELinuxLabel(t.TempDir())
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.Empty(t, label)
}
