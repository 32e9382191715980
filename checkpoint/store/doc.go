// Package store keeps generations on disk, so that what it has said is there is
// still there, whole, after a power cut, and what is not whole is never served.
//
//	lock                                     one writer; see [LockDir]
//	node.json                                identity of the node
//	payloads/<digest>/payload.json           the files of a volume; sha256 of this file is <digest>
//	workloads/<namespace>/<workload>/
//	  generations/<seq>.json                 one record per generation
//	  state.json                             what the world can't tell
//	  quarantine/                            what was found bad, moved aside and never deleted
//	quarantine/                              the same for node.json
//	activations/<id>/                        what one checkpoint mounts
//	  activation.json                        which generation this is
//	  <volume>/..<digest>/<path>             the layout of the kubelet's AtomicWriter
//	  <volume>/..data -> ..<digest>          (pkg/volume/util/atomic_writer.go, v1.37), so that
//	  <volume>/<first> -> ..data/<first>     programs see a refresh as they would a kubelet's
//
// Directories are 0700 and files 0600, but inside of an activation: its volumes
// are bind mounted into pods, so there the directories are 0755 and the files
// have the payload's own modes and owners. Nobody but root gets to them on the
// host, where the directories above are closed.
//
// Each write, and what a crash in it leaves for the next [Open]:
//
//   - Commit writes the payloads, then the record. The record's rename commits
//     the generation. Before it, there are payloads that nothing names, which
//     the next Prune removes.
//   - SetState and SetNode replace one file: the old one or the new one is left.
//   - Stage fills a temporary directory and renames it: all of the activation is
//     left, or none.
//   - Refresh turns one volume of an activation after the other to the files of
//     another generation, each by the rename of its ..data, and writes
//     activation.json last. Volumes of either generation are left, each whole, and
//     activation.json names the old one; the next Refresh goes on.
//   - Prune removes activations, then records, then payloads that nothing names
//     any more, each whole; the next one goes on.
//   - What Open finds bad is moved into quarantine, the payload before the records
//     that name it; the next Open goes on.
//
// Temporary files of a crash go in Open.
//
// node.json, state.json, activation.json and the records have a frame with
// format, kind, length and checksum. A byte that was cut off or changed anywhere
// in them, or in a payload, is noticed.
package store
