// Package kubelet is the kubelet seen from outside: the directory of its static
// pods, and what its local sockets tell of the pods that it knows.
//
// The kubelet is an unreliable actuator: a manifest that is written is a pod that
// was asked for, not one that runs, and one that is removed is not one that has
// stopped. What runs, only the container runtime tells.
package kubelet

// PodName is the name by which the kubelet and the API server know a pod. That of
// a static pod ends in "-" and the node's name.
type PodName struct{ Namespace, Name string }
