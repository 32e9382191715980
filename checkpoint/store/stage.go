package store

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

// Stage makes what the checkpoint of an activation mounts, from one generation, and
// returns the absolute path of each volume. points are, by volume, directories in it
// on which containers mount other volumes. When it returns nil, all of it is
// durable. An activation that is there already is left as it is, and is an error if
// it is of another generation. A generation whose payload turns out to be bad is
// set aside, as by [Open], with an error: there is another one to be chosen.
func (s *Store) Stage(k Key, seq int64, activation string, points map[string][]string) (map[string]string, error) {
	paths, err := s.stage(k, seq, activation, points)
	if err != nil {
		return nil, fmt.Errorf("stage generation %d of %s: %w", seq, k, err)
	}
	return paths, nil
}

func (s *Store) stage(k Key, seq int64, activation string, points map[string][]string) (map[string]string, error) {
	if !isHex(activation, 32) {
		return nil, fmt.Errorf("activation %q is not of 32 hex digits", activation)
	}
	w, ok := s.workloads[k]
	if !ok {
		return nil, fmt.Errorf("no such workload: %w", fs.ErrNotExist)
	}
	g, ok := w.generation(seq)
	if !ok {
		return nil, fmt.Errorf("no such generation: %w", fs.ErrNotExist)
	}
	of, there := s.activations[activation]
	switch {
	case !there || of.of(k, seq):
	case of.Workload == "":
		return nil, fmt.Errorf("activation %s is broken", activation)
	default:
		return nil, fmt.Errorf("activation %s is of generation %d of %s/%s", activation, of.Generation, of.Namespace, of.Workload)
	}
	dir := "activations/" + activation
	paths := map[string]string{}
	for volume := range g.Payloads {
		paths[volume] = filepath.Join(s.dir.Path(), dir, volume)
	}
	if there {
		return paths, nil
	}
	tree, err := s.tree(g, stage{k.Namespace, k.Workload, seq}, points)
	if err != nil {
		return nil, err
	}
	if err := s.dir.Mkdir("activations", 0o700); err != nil {
		return nil, err
	}
	if err := s.plant(s.mounts(activation), dir, tree); err != nil {
		delete(s.unlabelled, activation)
		return nil, err
	}
	s.activations[activation] = stage{k.Namespace, k.Workload, seq}
	return paths, nil
}

// tree lays a generation out as the kubelet does for a Secret volume. A file whose
// name a directory has can't be seen in the volume, there as here.
func (s *Store) tree(g Generation, of stage, points map[string][]string) (durable.Tree, error) {
	record, err := seal("activation", of)
	if err != nil {
		return durable.Tree{}, err
	}
	t := durable.Tree{
		Perm: 0o755,
		Files: map[string]durable.File{
			"activation.json": {Data: record, Perm: 0o600, UID: durable.Unowned, GID: durable.Unowned},
		},
		Links: map[string]string{},
	}
	for _, volume := range slices.Sorted(maps.Keys(g.Payloads)) {
		payload := g.Payloads[volume]
		files, err := s.layable(payload)
		if err != nil {
			return durable.Tree{}, err
		}
		data := path.Join(volume, ".."+payload)
		t.Dirs = append(t.Dirs, data)
		t.Links[path.Join(volume, "..data")] = ".." + payload
		for _, first := range visible(files) {
			t.Links[path.Join(volume, first)] = "..data/" + first
		}
		for _, point := range points[volume] {
			t.Dirs = append(t.Dirs, path.Join(volume, point))
			first, _, _ := strings.Cut(point, "/")
			delete(t.Links, path.Join(volume, first))
		}
		for _, f := range files {
			t.Files[path.Join(data, f.Path)] = f.onDisk()
		}
	}
	return t, nil
}

// layable reads a payload that is to be mounted. A bad one is set aside.
func (s *Store) layable(payload string) ([]payloadFile, error) {
	files, err := s.readPayload(payload)
	if s.isBad(err) {
		s.losePayload(payload, err)
		_ = s.tidy(every) // or else the next write
	}
	return files, err
}

// visible are the names in the volume's directory that lead to its files, sorted.
func visible(files []payloadFile) []string {
	var names []string
	for _, f := range files { // which are sorted
		first, _, _ := strings.Cut(f.Path, "/")
		names = append(names, first)
	}
	return slices.Compact(names)
}

func (f payloadFile) onDisk() durable.File {
	return durable.File{Data: f.Data, Perm: f.Mode, UID: f.UID, GID: f.GID}
}
