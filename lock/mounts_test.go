package lock

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMountsNameThePod(t *testing.T) {
	for _, tt := range []struct{ name, mounts, want string }{
		{"hosts", "731 712 8:1 /var/lib/kubelet/pods/5f0c6c1e-7a33-4b0e-9c52-2f6f1b0a9d11/etc-hosts /etc/hosts rw,relatime - ext4 /dev/sda1 rw", "5f0c6c1e-7a33-4b0e-9c52-2f6f1b0a9d11"},
		{"termination log of a static pod, on a disk of its own", "732 712 8:2 /pods/0123456789abcdef0123456789abcdef/containers/pod-checkpointer/5d2e7b1a /dev/termination-log rw - ext4 /dev/sdb1 rw", "0123456789abcdef0123456789abcdef"},
		{"somebody else's volume", "40 26 0:52 /var/lib/kubelet/pods/5f0c6c1e-7a33-4b0e-9c52-2f6f1b0a9d11/etc-hosts /mnt/hosts rw - ext4 /dev/sda1 rw", ""},
		{"the host", "26 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw", ""},
		{"nothing", "", ""},
	} {
		require.Equal(t, tt.want, parseMounts("25 1 8:1 / / rw - ext4 /dev/sda1 rw\n"+tt.mounts+"\n"), tt.name)
	}
}

// A reader in a cgroup namespace of its own sees its own cgroup as the root, which
// names nothing; that of another process is not looked up by its mounts.
func TestProcessAtTheRootOfTheNamespaceIsNamedByItsMounts(t *testing.T) {
	proc := t.TempDir()
	write := func(pid, name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(proc, pid), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(proc, pid, name), []byte(text), 0o644))
	}
	const mounts = "731 712 8:1 /var/lib/kubelet/pods/5f0c6c1e-7a33-4b0e-9c52-2f6f1b0a9d11/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw\n"
	for pid, cgroup := range map[string]string{"7": "0::/\n", "8": "0::/../../system.slice/sshd.service\n"} {
		write(pid, "cgroup", cgroup)
		write(pid, "stat", "7 (x) S"+strings.Repeat(" 1", 30))
		write(pid, "mountinfo", mounts)
	}
	self, err := readProcess(proc, 7)
	require.NoError(t, err)
	require.Equal(t, "5f0c6c1e-7a33-4b0e-9c52-2f6f1b0a9d11", self.PodUID)
	other, err := readProcess(proc, 8)
	require.NoError(t, err)
	require.Empty(t, other.PodUID)
}
