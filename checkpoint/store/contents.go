package store

import (
	"fmt"
	"maps"
	"slices"
)

// Contents reads the volumes of a generation from the disk, sorted by name. Nothing
// of them stays in memory.
func (s *Store) Contents(k Key, seq int64) ([]Volume, error) {
	w, ok := s.workloads[k]
	if !ok {
		return nil, fmt.Errorf("read %s: there is no such workload", k)
	}
	g, ok := w.generation(seq)
	if !ok {
		return nil, fmt.Errorf("read %s: there is no generation %d", k, seq)
	}
	var out []Volume
	for _, name := range slices.Sorted(maps.Keys(g.Payloads)) {
		files, err := s.readPayload(g.Payloads[name])
		if err != nil {
			return nil, fmt.Errorf("read %s generation %d: volume %s: %w", k, seq, name, err)
		}
		v := Volume{Name: name}
		for _, f := range files {
			v.Files = append(v.Files, File{Path: f.Path, Data: f.Data, Mode: f.Mode, UID: f.UID, GID: f.GID})
		}
		out = append(out, v)
	}
	return out, nil
}
