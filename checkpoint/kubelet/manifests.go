package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

// ErrForeign is the refusal to touch a file that is not ours.
var ErrForeign = errors.New("the file is not one of pod-checkpointer's and stays as it is: move it out of the directory or give it another name")

// maxManifest is what the kubelet reads of a file
// (k8s.io/kubernetes@v1.37.2 pkg/kubelet/config/common.go, maxConfigLength).
const maxManifest = 10 << 20

// Manifest is one file of ours in the static pod directory.
type Manifest struct {
	File                string // its name in the directory
	Namespace, Workload string
	Activation          string
	Generation          int64
	UID                 string // of the pod; "" if the kubelet makes one
	PodName             string // as the kubelet knows it
	Data                []byte // the whole file
}

// Copy is a static copy of the daemon: ours, and no workload's checkpoint.
type Copy struct {
	File                string // its name in the directory; CopyFile, unless somebody copied it
	Namespace, Workload string // of which it is a copy
	UID                 string // of the pod
	PodName             string // as the kubelet knows it
	Data                []byte // the whole file
}

// Pod is a static pod of somebody else.
type Pod struct{ File, Namespace, Name string }

// Listing is what the kubelet finds in the directory, sorted by file.
type Listing struct {
	Ours     []Manifest
	Copies   []Copy
	Foreign  []Pod
	Problems []Problem
}

// Problem is a file that is no pod to the kubelet.
type Problem struct {
	File string
	Path string
	Read bool // it was read, and the kubelet runs nothing of it; else nobody knows what is in it
	Err  error
}

func (p Problem) String() string { return fmt.Sprintf("%s: %v", p.Path, p.Err) }

// Manifests is the static pod directory. No file of others is ever changed. It may
// be used by several goroutines, as long as no two change the same file.
type Manifests struct {
	path string // "": dir stays the one that it is
	node string

	looks bool // leave also what is left of ours

	mu    sync.Mutex
	dir   *durable.Dir // nil: not open yet
	clean bool         // nothing of ours is left in dir from before a crash
}

// OpenManifests returns the directory at path as the kubelet of that node sees it.
// It need not be there yet, and may be made anew: each call looks it up by its path.
func OpenManifests(path, node string) (*Manifests, error) {
	// The kubelet globs the path (pkg/kubelet/config/file.go, extractFromDir).
	if !filepath.IsAbs(path) || strings.ContainsAny(path, `*?[\`) {
		return nil, fmt.Errorf("static pod directory %q (--static-pod-dir): want an absolute path without any of * ? [ \\", path)
	}
	return &Manifests{path: path, node: node}, nil
}

// NewManifests returns the directory dir, whatever becomes of its path.
func NewManifests(dir *durable.Dir, node string) *Manifests {
	return &Manifests{dir: dir, node: node}
}

// ReadOnly makes m leave also the temporary files of ours, which may be those of the
// process that writes, and returns it.
func (m *Manifests) ReadOnly() *Manifests {
	m.looks = true
	return m
}

// List reads the directory. A file that is no pod is a problem and no error, as it
// is for the kubelet.
func (m *Manifests) List() (Listing, error) {
	var l Listing
	dir, err := m.open()
	if err != nil {
		return l, explain(err)
	}
	entries, err := dir.ReadDir(".")
	if err != nil {
		return l, explain(err)
	}
	for _, e := range entries {
		// The kubelet skips dot files and does not descend.
		if strings.HasPrefix(e.Name(), ".") || e.IsDir() {
			continue
		}
		data, err := read(dir, e)
		if errors.Is(err, fs.ErrNotExist) && e.Type().IsRegular() {
			continue // gone since
		}
		wasRead := err == nil
		if wasRead {
			err = m.add(&l, e.Name(), data)
		}
		if err != nil {
			l.Problems = append(l.Problems, Problem{e.Name(), filepath.Join(dir.Path(), e.Name()), wasRead, err})
		}
	}
	return l, nil
}

func (m *Manifests) add(l *Listing, file string, data []byte) error {
	h, err := parse(data)
	if err != nil {
		return err
	}
	namespace, name := h.Metadata.Namespace, staticName(h.Metadata.Name, m.node)
	workload, generation, ours := h.ours()
	if of, ok := h.copyOf(); ok && !ours {
		l.Copies = append(l.Copies, Copy{
			File: file, Namespace: namespace, Workload: of, UID: h.Metadata.UID, PodName: name, Data: data,
		})
		return nil
	}
	if !ours {
		l.Foreign = append(l.Foreign, Pod{File: file, Namespace: namespace, Name: name})
		return nil
	}
	l.Ours = append(l.Ours, Manifest{
		File:       file,
		Namespace:  namespace,
		Workload:   workload,
		Activation: h.Metadata.Annotations[activationAnnotation],
		Generation: generation,
		UID:        h.Metadata.UID,
		PodName:    name,
		Data:       data,
	})
	return nil
}

// Write puts a manifest of ours in the directory, in place of one of ours with that
// name. When it returns nil, the file is durable and in the kubelet's sight. The
// error is ErrForeign if the name is taken by a file that is not ours.
func (m *Manifests) Write(file string, data []byte) error {
	if strings.HasPrefix(file, ".") || file != filepath.Base(file) {
		return fmt.Errorf("write manifest: the kubelet takes no file named %q", file)
	}
	h, err := parse(data)
	if err != nil {
		return fmt.Errorf("write manifest %s: %w", file, err)
	}
	if !h.written() {
		return fmt.Errorf("write manifest %s: it has no valid annotation %s or %s", file, ofAnnotation, copyAnnotation)
	}
	dir, err := m.open()
	if err != nil {
		return explain(err)
	}
	if err := own(dir, file); err != nil {
		return err
	}
	return explain(dir.WriteFile(file, data, 0o600)) // literal values of env may be secret
}

// Remove takes a manifest of ours away, durably. One that is not there is no error;
// one that is not ours is ErrForeign.
func (m *Manifests) Remove(file string) error {
	dir, err := m.open()
	if err != nil {
		return explain(err)
	}
	if err := own(dir, file); err != nil {
		return err
	}
	return explain(dir.Remove(file)) // even if it is absent: an earlier removal may not be durable
}

// own fails if the file is there and not ours: by its annotations or, where it is no
// pod at all, by its name.
func own(dir *durable.Dir, file string) error {
	info, err := dir.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return explain(err)
	}
	foreign := fmt.Errorf("%s: %w", filepath.Join(dir.Path(), file), ErrForeign)
	if readable(info) != nil {
		return foreign
	}
	data, err := dir.ReadFile(file)
	if err != nil {
		return explain(err)
	}
	h, err := parse(data)
	if err != nil && named(file) {
		return nil // what is left of one of ours after a crash of the disk
	}
	if !h.written() {
		return foreign
	}
	return nil
}

// read follows links as the kubelet does, also out of the directory.
func read(dir *durable.Dir, e fs.DirEntry) ([]byte, error) {
	if e.Type()&fs.ModeSymlink == 0 {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if err := readable(info); err != nil {
			return nil, err
		}
		return dir.ReadFile(e.Name())
	}
	path := filepath.Join(dir.Path(), e.Name())
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := readable(info); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// readable: to read a named pipe would wait for ever.
func readable(info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return errors.New("no regular file")
	case info.Size() > maxManifest:
		return fmt.Errorf("%d bytes are more than the %d that the kubelet reads", info.Size(), maxManifest)
	}
	return nil
}

// open returns the directory that is now at the path. What a crash left of ours is
// removed as soon as the directory can be written to.
func (m *Manifests) open() (*durable.Dir, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.path != "" {
		now, err := os.Stat(m.path)
		if err != nil {
			return nil, err
		}
		if !m.is(now) {
			dir, err := durable.Open(m.path)
			if err != nil {
				return nil, err
			}
			m.dir, m.clean = dir, false
		}
	}
	if !m.clean && !m.looks {
		m.clean = m.dir.Clean() == nil
	}
	return m.dir, nil
}

func (m *Manifests) is(now fs.FileInfo) bool {
	if m.dir == nil {
		return false
	}
	open, err := m.dir.Stat(".")
	return err == nil && os.SameFile(open, now)
}

func explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("static pod directory (--static-pod-dir): %w", err)
}
