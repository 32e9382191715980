package store

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

// Limits of the kubelet's AtomicWriter (validatePath).
const (
	maxPath = 4096
	maxName = 255
)

type payload struct {
	Files []payloadFile `json:"files"`
}

type payloadFile struct {
	Path string      `json:"path"`
	Mode fs.FileMode `json:"mode"`
	UID  int         `json:"uid"`
	GID  int         `json:"gid"`
	Data []byte      `json:"data"`
}

// encode returns the one spelling of these files, in whatever order they come.
func encode(files []File) []byte {
	var p payload
	for _, f := range files {
		data := f.Data
		if data == nil {
			data = []byte{}
		}
		p.Files = append(p.Files, payloadFile{f.Path, f.Mode, f.UID, f.GID, data})
	}
	slices.SortStableFunc(p.Files, func(a, b payloadFile) int { return strings.Compare(a.Path, b.Path) })
	data, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings, numbers and bytes always marshal
	}
	return append(data, '\n')
}

// decode returns the files of a payload whose digest is want.
func decode(data []byte, want string) ([]payloadFile, error) {
	if digest(data) != want {
		return nil, errBad("its checksum is wrong")
	}
	var p payload
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, errBad("it is no payload of this daemon")
	}
	return p.Files, nil
}

// check refuses what the kubelet would refuse, or what is no path of its own.
func (v Volume) check() error {
	if !isLabel(v.Name) {
		return fmt.Errorf("volume %q: the name is no DNS-1123 label", v.Name)
	}
	files, dirs := map[string]bool{}, map[string]bool{}
	for _, f := range v.Files {
		if err := f.check(); err != nil {
			return fmt.Errorf("volume %s: file %q: %w", v.Name, f.Path, err)
		}
		if files[f.Path] {
			return fmt.Errorf("volume %s: file %q: it is there twice", v.Name, f.Path)
		}
		files[f.Path] = true
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	for name := range files {
		if dirs[name] {
			return fmt.Errorf("volume %s: file %q: it is a directory too", v.Name, name)
		}
	}
	return nil
}

func (f File) check() error {
	if !fs.ValidPath(f.Path) || f.Path == "." || strings.HasPrefix(f.Path, "..") || len(f.Path) > maxPath {
		return fmt.Errorf("no path below a volume")
	}
	for name := range strings.SplitSeq(f.Path, "/") {
		if len(name) > maxName || strings.HasPrefix(name, durable.TempPrefix) || strings.ContainsRune(name, 0) {
			return fmt.Errorf("%q is no name for a file", name)
		}
	}
	if f.Mode&^fs.ModePerm != 0 {
		return fmt.Errorf("mode %v has more than permissions", f.Mode)
	}
	if f.UID < 0 || f.GID < 0 {
		return fmt.Errorf("owner %d:%d is below 0", f.UID, f.GID)
	}
	return nil
}

// isLabel says that a name is a DNS-1123 label, isSubdomain that it is labels
// between dots (k8s.io/apimachinery/pkg/util/validation).
func isLabel(name string) bool { return len(name) <= 63 && isAlphanumeric(name) }

func isSubdomain(name string) bool {
	for label := range strings.SplitSeq(name, ".") {
		if !isAlphanumeric(label) {
			return false
		}
	}
	return len(name) <= 253
}

// isAlphanumeric says that a name is of a-z, 0-9 and, inside, '-'.
func isAlphanumeric(name string) bool {
	return name != "" && name[0] != '-' && name[len(name)-1] != '-' &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// isHex says that a name is of so many lower-case hex digits.
func isHex(name string, length int) bool {
	return len(name) == length && strings.Trim(name, "0123456789abcdef") == ""
}

func (k Key) check() error {
	if !isLabel(k.Namespace) {
		return fmt.Errorf("namespace %q is no DNS-1123 label", k.Namespace)
	}
	if !isSubdomain(k.Workload) {
		return fmt.Errorf("workload %q is no DNS-1123 subdomain", k.Workload)
	}
	return nil
}
