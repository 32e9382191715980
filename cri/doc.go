// Package cri tells what runs on this node, as the container runtime knows it,
// and stops it. It speaks runtime.v1 over a unix socket and nothing else.
//
// An error means that the runtime did not say: it is never proof that nothing
// runs. Every deadline is the caller's.
package cri
