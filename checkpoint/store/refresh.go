package store

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

// Files returns the generation of which the files of an activation are, 0 if there
// is no such activation of that workload or nobody can tell. It reads no disk.
func (s *Store) Files(k Key, activation string) int64 {
	of := s.activations[activation]
	if !of.of(k, of.Generation) {
		return 0
	}
	return of.Generation
}

// Refresh gives an activation, which containers may have mounted, the files of
// another generation of the same volumes. Each volume turns to its new files in one
// instant, by the kubelet's own way, so that programs which follow a Secret volume
// read them; one whose files are the same is not touched. When it returns nil, all of
// it is durable. A crash leaves volumes of either generation, each whole, and
// activation.json, which is written last, with the old one: the next call goes on.
//
// A generation whose payload turns out to be bad is set aside, as by [Store.Stage],
// with no volume changed.
func (s *Store) Refresh(k Key, seq int64, activation string) error {
	if err := s.refresh(k, seq, activation); err != nil {
		return fmt.Errorf("refresh activation %s of %s to generation %d: %w", activation, k, seq, err)
	}
	return nil
}

func (s *Store) refresh(k Key, seq int64, activation string) error {
	of := s.activations[activation]
	switch {
	case s.Files(k, activation) == 0:
		return fmt.Errorf("no such activation: %w", fs.ErrNotExist)
	case of.Generation == seq:
		return nil
	}
	g, ok := s.workloads[k].generation(seq)
	if !ok {
		return fmt.Errorf("no such generation: %w", fs.ErrNotExist)
	}
	dir := "activations/" + activation
	changed, err := s.changed(dir, g)
	if err != nil {
		return err
	}
	mounts := s.mounts(activation)
	for _, volume := range slices.Sorted(maps.Keys(changed)) {
		if err := s.turn(mounts, path.Join(dir, volume), g.Payloads[volume], changed[volume]); err != nil {
			return err
		}
	}
	old, err := seal("activation", of)
	if err != nil {
		return err
	}
	of.Generation = seq
	data, err := seal("activation", of)
	if err != nil {
		return err
	}
	if err := s.write(dir+"/activation.json", data, old); err != nil {
		return err
	}
	s.activations[activation] = of
	return nil
}

// changed are the volumes of an activation that are not as the generation has them,
// with the files that they get. All are read before the first one is touched.
func (s *Store) changed(dir string, g Generation) (map[string][]payloadFile, error) {
	volumes, err := s.volumes(dir)
	if err != nil {
		return nil, err
	}
	if want := slices.Sorted(maps.Keys(g.Payloads)); !slices.Equal(volumes, want) {
		return nil, fmt.Errorf("it has the volumes %q, not %q", volumes, want)
	}
	changed := map[string][]payloadFile{}
	for _, volume := range volumes {
		settled, err := s.settled(path.Join(dir, volume), g.Payloads[volume])
		if err != nil {
			return nil, err
		}
		if settled {
			continue
		}
		if changed[volume], err = s.layable(g.Payloads[volume]); err != nil {
			return nil, err
		}
	}
	return changed, nil
}

// volumes are those of an activation on disk, sorted.
func (s *Store) volumes(dir string) ([]string, error) {
	entries, err := s.dir.ReadDir(dir)
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), durable.TempPrefix) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// settled tells whether a volume has these files, and no others beside them. While it
// has, it was turned by somebody who may not have come to the fsync.
func (s *Store) settled(volume, payload string) (bool, error) {
	link, err := s.dir.Readlink(volume + "/..data")
	if err != nil || link != ".."+payload {
		return false, err
	}
	entries, err := s.dir.ReadDir(volume)
	return !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return isData(e) && e.Name() != link }), err
}

// isData tells whether an entry of a volume is a directory that ..data leads to, or
// has led to, or will.
func isData(e fs.DirEntry) bool { return e.IsDir() && strings.HasPrefix(e.Name(), "..") }

// turn lets a volume have the files of a payload. Of a name that comes or goes, the
// link leads nowhere until ..data is turned, or from then on: who opens it finds the
// files of one payload alone at any instant.
func (s *Store) turn(mounts *durable.Dir, volume, payload string, files []payloadFile) error {
	data := path.Join(volume, ".."+payload)
	link, err := s.dir.Readlink(volume + "/..data")
	if err != nil {
		return err
	}
	if link != ".."+payload { // else it is durable, as it was before the link
		if err := s.dir.RemoveAll(data); err != nil {
			return err
		}
		if err := s.plant(mounts, data, dataOf(files)); err != nil {
			return err
		}
	}
	entries, err := s.dir.ReadDir(volume)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, name := range visible(files) {
		wanted[name] = true
		if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name }) {
			continue // the fsync after the turn covers it in any case
		}
		if err := mounts.Symlink("..data/"+name, path.Join(volume, name)); err != nil {
			return err
		}
	}
	if err := mounts.Symlink(".."+payload, volume+"/..data"); err != nil {
		return err
	}
	return s.sweep(volume, ".."+payload, wanted)
}

func dataOf(files []payloadFile) durable.Tree {
	t := durable.Tree{Perm: 0o755, Files: map[string]durable.File{}}
	for _, f := range files {
		t.Files[f.Path] = f.onDisk()
	}
	return t
}

// sweep removes what a volume does not need any more, the old files last: while they
// are there, the volume is not settled.
func (s *Store) sweep(volume, data string, wanted map[string]bool) error {
	entries, err := s.dir.ReadDir(volume)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type() == fs.ModeSymlink && e.Name() != "..data" && !wanted[e.Name()] {
			if err := s.dir.Remove(path.Join(volume, e.Name())); err != nil {
				return err
			}
		}
	}
	for _, e := range entries {
		if isData(e) && e.Name() != data {
			if err := s.dir.RemoveAll(path.Join(volume, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
