// Package cri tells what runs on this node, as the container runtime knows it,
// and stops it. It speaks runtime.v1 over a unix socket, and hears of changes by
// containerd's event service on the same socket, where there is one.
//
// An error means that the runtime did not say: it is never proof that nothing
// runs. Every deadline is the caller's.
package cri
