package data

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseWALReadsTheLogsOfRealMembers(t *testing.T) {
	for name, head := range heads(t) {
		member, cluster, err := parseWAL(head)
		require.NoError(t, err, name)
		require.True(t, strings.HasPrefix(name, fmt.Sprintf("etcd member %x of cluster %x/", member, cluster)), name)
	}
}

// What is cut or flipped in what counts is never another member.
func TestParseWALTakesNothingThatIsDamaged(t *testing.T) {
	for name, head := range heads(t) {
		used := 16 // the first record, and the second one
		if strings.HasSuffix(name, later) {
			used += 40
		} else {
			used += 40 - 1
		}
		for n := range used {
			if _, _, err := parseWAL(head[:n]); err == nil {
				require.GreaterOrEqual(t, n, used-1, name)
			}
		}
		member, cluster, err := parseWAL(head)
		require.NoError(t, err)
		for bit := range used * 8 {
			flipped := append([]byte(nil), head...)
			flipped[bit/8] ^= 1 << (bit % 8)
			m, c, err := parseWAL(flipped)
			if err == nil {
				require.Equal(t, []uint64{member, cluster}, []uint64{m, c}, "%s: bit %d", name, bit)
			}
		}
	}
}

func FuzzParseWAL(f *testing.F) {
	for _, head := range heads(f) {
		f.Add(head)
	}
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, head []byte) {
		member, cluster, err := parseWAL(head)
		if (err == nil) != (member != 0 && cluster != 0) {
			t.Fatalf("member %x of cluster %x with error %v", member, cluster, err)
		}
	})
}
