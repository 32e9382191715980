// Package lab is a real control plane on one machine: etcd, a self-hosted
// kube-apiserver, controller manager, scheduler, kubelet, containerd, and
// pod-checkpointer, on a node whose power can be cut.
//
// The node is a set of namespaces of this machine with a disk that is a folder
// (package node). It changes nothing outside of the lab's folder below the
// cache, network namespaces and cgroups that carry the lab's name, and all of
// its traffic stays inside of its network namespaces. It needs Linux and root;
// Up names everything that is missing at once.
//
//	l, err := lab.Up(ctx, lab.Options{Name: "e2e"})
//	…
//	defer l.Down(context.Background())
//	err = l.Reboot(ctx) // a power cut, and what a machine starts at boot
//	out, err := l.Kubectl(ctx, "get", "pods", "-A")
//
// Whoever waits for the kubelet, the controller manager or the scheduler to see
// an API server again must allow two minutes: client-go's reflectors back off
// to 30 to 60 s and forget that only after two minutes without an error.
package lab
