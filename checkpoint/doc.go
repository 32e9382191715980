// Package checkpoint keeps the pods that a control plane is made of startable
// on this node, and starts their copies when they do not run.
//
// A parent is the pod from the API; a workload is what successive parents have
// in common; a generation is one immutable snapshot of a workload on disk; a
// checkpoint is a generation that was started as a static pod.
//
// One pass of the loop is observe, decide, apply:
//
//	observe   asks lock table, runtime, kubelet, API and disk, and turns each
//	          answer into Known or Unknown                      observe.go
//	decide    derives the state of each workload from that and names at most
//	          one action; pure                                  decide*.go
//	apply     carries the action out                            apply.go
//
// Nothing is remembered that the world can tell. What it can't tell and must
// survive a restart stands in the store's state; what only spans passes (since
// when something is so) is the watch of the observe step, and losing it makes
// the next decision later, never bolder.
package checkpoint
