package store

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

// Commit makes the draft the newest generation of a workload and returns its
// number. If the newest one is the same, that is its number and nothing is written.
// When it returns nil, all of the generation is durable.
func (s *Store) Commit(k Key, d Draft) (int64, error) {
	seq, err := s.commit(k, d)
	if err != nil {
		return 0, fmt.Errorf("commit %s: %w", k, err)
	}
	return seq, nil
}

func (s *Store) commit(k Key, d Draft) (int64, error) {
	if err := k.check(); err != nil {
		return 0, err
	}
	w, known := s.workloads[k]
	if !known {
		w = &workload{Workload: Workload{Key: k}, aside: map[string]bool{}}
	}
	if len(w.Generations) > 0 && w.Generations[0].Same(d) {
		return w.Generations[0].Seq, nil
	}
	g, payloads, err := draw(d, w.last+1)
	if err != nil {
		return 0, err
	}
	data, err := seal("generation", record{k.Namespace, k.Workload, g.Seq, g.Pod, g.Payloads, g.Source, g.Written})
	if err != nil {
		return 0, err
	}
	for _, payload := range slices.Sorted(maps.Keys(payloads)) {
		if err := s.writePayload(payload, payloads[payload]); err != nil {
			return 0, err
		}
	}
	if err := s.dir.Mkdir(k.at("generations"), 0o700); err != nil {
		return 0, err
	}
	if err := s.write(k.record(g.Seq), data, nil); err != nil {
		return 0, err
	}
	w.last = g.Seq
	w.Generations = slices.Insert(w.Generations, 0, g)
	s.workloads[k] = w
	return g.Seq, nil
}

// draw makes a generation of a draft, and its payloads by digest.
func draw(d Draft, seq int64) (Generation, map[string][]byte, error) {
	pod, err := compact(d.Pod)
	if err != nil {
		return Generation{}, nil, err
	}
	g := Generation{
		Seq: seq, Pod: pod, Spec: digest(pod), Payloads: map[string]string{}, Source: d.Source,
		Written: time.Now().UTC(),
	}
	payloads := map[string][]byte{}
	for _, v := range d.Volumes {
		if err := v.check(); err != nil {
			return Generation{}, nil, err
		}
		if g.Payloads[v.Name] != "" {
			return Generation{}, nil, fmt.Errorf("volume %s: it is there twice", v.Name)
		}
		data := encode(v.Files)
		g.Payloads[v.Name] = digest(data)
		payloads[digest(data)] = data
	}
	return g, payloads, nil
}

// writePayload leaves alone what is known to be whole, and believes nothing else.
func (s *Store) writePayload(payload string, data []byte) error {
	whole, there := s.payloads[payload]
	if whole {
		return nil
	}
	if there {
		if err := s.removePayload(payload); err != nil {
			return err
		}
	}
	if err := s.dir.Mkdir("payloads", 0o700); err != nil {
		return err
	}
	err := s.plant(s.dir, payloadDir(payload), durable.Tree{Perm: 0o700, Files: map[string]durable.File{
		"payload.json": {Data: data, Perm: 0o600, UID: durable.Unowned, GID: durable.Unowned},
	}})
	if err != nil {
		return err
	}
	s.payloads[payload] = true
	return nil
}
