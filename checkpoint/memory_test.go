package checkpoint

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLetGoLeavesWhatIsNotUsed(t *testing.T) {
	before := ofFiles(t)
	LetGo()
	require.Less(t, ofFiles(t), before, "kB of the program in memory")
	require.Regexp(t, regexp.MustCompile(`^\d+$`), strconv.Itoa(before), "and it runs on")
}

// ofFiles is the memory that holds pages of files, in kB.
func ofFiles(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	kb, err := strconv.Atoi(regexp.MustCompile(`RssFile:\s+(\d+)`).FindStringSubmatch(string(status))[1])
	require.NoError(t, err)
	return kb
}
