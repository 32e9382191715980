package snapshot

import (
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// A tree collects the files of one volume, as the kubelet's AtomicWriter gets
// them (pkg/volume/util/atomic_writer.go, v1.37.2).
type tree struct {
	own   ownership
	at    string      // path of the volume in the pod
	mode  fs.FileMode // of files that have none of their own
	user  *int64      // of files that have none of their own; nil: root
	files map[string]File
}

// add puts a file in the place of an earlier one of its path, since the later
// source wins. mode and user may be nil.
func (t *tree) add(at, name string, data []byte, mode *int32, user *int64) error {
	clean, ok := cleanPath(name)
	if !ok {
		return refused(UnsafePath, at, "%q is no path within the volume; choose another one", name)
	}
	if user == nil {
		user = t.user
	}
	if user != nil && !isOwner(*user) {
		return refused(Unsupported, t.at, "%d is no user for a file; use 0 to %d", *user, math.MaxInt32)
	}
	t.files[clean] = t.own.file(clean, data, modeOf(mode, int32(t.mode)), user)
	return nil
}

// list refuses a file that another one needs as its directory.
func (t *tree) list() ([]File, error) {
	var list []File
	for _, name := range slices.Sorted(maps.Keys(t.files)) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := t.files[dir]; ok {
				return nil, refused(UnsafePath, t.at, "%q is a file and the directory of %q; choose another path", dir, name)
			}
		}
		list = append(list, t.files[name])
	}
	return list, nil
}

// Limits of Linux that the kubelet checks (validatePath). Names that begin with
// two dots are its own.
const (
	maxPathLen = 4096
	maxNameLen = 255
)

func cleanPath(name string) (string, bool) {
	if name == "" || path.IsAbs(name) || len(name) > maxPathLen ||
		strings.HasPrefix(name, "..") || strings.ContainsRune(name, 0) || !utf8.ValidString(name) {
		return "", false
	}
	for element := range strings.SplitSeq(name, "/") {
		if element == ".." || len(element) > maxNameLen {
			return "", false
		}
	}
	clean := path.Clean(name)
	return clean, clean != "." && !strings.HasPrefix(clean, "..")
}

func modeOf(mode *int32, otherwise int32) fs.FileMode {
	if mode == nil {
		return fs.FileMode(otherwise)
	}
	return fs.FileMode(*mode)
}
