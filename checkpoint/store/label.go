package store

import "github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"

// Label has the files that containers mount carry an SELinux label, from the next
// Stage or Refresh on; "" is none. One that can't be set keeps nobody from starting:
// [Store.Problems] names the first path of each activation, until that is removed or
// the process ends.
func (s *Store) Label(label string) { s.label = label }

// mounts is the directory through which all is made that containers mount.
func (s *Store) mounts(activation string) *durable.Dir {
	if s.label == "" {
		return s.dir
	}
	return s.dir.Labelled(s.label, func(err error) {
		if s.unlabelled[activation] == nil {
			s.unlabelled[activation] = err
		}
	})
}
