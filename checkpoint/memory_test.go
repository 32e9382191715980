package checkpoint

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestLetGoLeavesWhatIsNotUsed(t *testing.T) {
	before := ofFiles(t)
	LetGo()
	unlessRelocated(t)
	require.Less(t, ofFiles(t), before, "kB of the program in memory")
	require.Regexp(t, regexp.MustCompile(`^\d+$`), strconv.Itoa(before), "and it runs on")
}

func TestWhatRanIsForgottenAtRestAlone(t *testing.T) {
	unlessRelocated(t)
	defer resting.Store(false)
	LetGo()
	for name, tt := range map[string]struct {
		rests bool
		done  func()
	}{
		"a pass, an answer":         {true, Forget},
		"a collection":              {true, runtime.GC},
		"a pass that is in motion":  {false, Forget},
		"a collection that is, too": {false, runtime.GC},
	} {
		t.Run(name, func(t *testing.T) {
			resting.Store(tt.rests)
			require.NoError(t, advise(unix.MADV_POPULATE_READ))
			whole := ofFiles(t)
			tt.done()
			forgotten := func() bool { return ofFiles(t) < whole*3/4 }
			if tt.rests {
				require.Eventually(t, forgotten, 10*time.Second, time.Millisecond, "%d kB stay", whole)
				return
			}
			require.Never(t, forgotten, 100*time.Millisecond, time.Millisecond)
		})
	}
}

// unlessRelocated skips a test of what is forgotten where nothing can be.
func unlessRelocated(t *testing.T) {
	t.Helper()
	relocated, err := relocates("/proc/self/exe")
	require.NoError(t, err)
	if relocated {
		t.Skip("this test was built as a program that is relocated, all of which stays: it has run on")
	}
}

// To forget a relocated page would be the end of the program (go build -buildmode=pie).
func TestAProgramThatIsRelocatedStays(t *testing.T) {
	for name, tt := range map[string]struct {
		kind      elf.Type
		segment   elf.ProgType
		relocated bool
	}{
		"at its own addresses":      {elf.ET_EXEC, elf.PT_LOAD, false},
		"linked against a library":  {elf.ET_EXEC, elf.PT_GNU_RELRO, true},
		"position-independent":      {elf.ET_DYN, elf.PT_LOAD, true},
		"position-independent, too": {elf.ET_DYN, elf.PT_GNU_RELRO, true},
	} {
		t.Run(name, func(t *testing.T) {
			header := elf.Header64{Type: uint16(tt.kind), Version: uint32(elf.EV_CURRENT), Phnum: 1}
			copy(header.Ident[:], elf.ELFMAG)
			header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA], header.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
			header.Ehsize, header.Phentsize = uint16(binary.Size(header)), uint16(binary.Size(elf.Prog64{}))
			header.Phoff = uint64(header.Ehsize)
			var file bytes.Buffer
			require.NoError(t, binary.Write(&file, binary.LittleEndian, header))
			require.NoError(t, binary.Write(&file, binary.LittleEndian, elf.Prog64{Type: uint32(tt.segment)}))
			path := filepath.Join(t.TempDir(), "program")
			require.NoError(t, os.WriteFile(path, file.Bytes(), 0o600))

			relocated, err := relocates(path)
			require.NoError(t, err)
			require.Equal(t, tt.relocated, relocated)
		})
	}
	_, err := relocates("/proc/self/status")
	require.Error(t, err, "no program")
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
