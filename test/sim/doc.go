// Package sim runs the real loop, the real store and the real directory of
// manifests on a model of one node, in virtual time, and breaks that node in
// every way that a seed comes up with.
//
// The model is the node's part that pod-checkpointer does not control: a kubelet
// in both of its regimes, a runtime, the kernel's file locks, the guarded
// programs, an API server that is up exactly while one of them serves, and a
// controller that replaces deleted pods. What the kubelet does follows
// k8s.io/kubernetes v1.37.2, pkg/kubelet (pod_workers.go, kubelet_pods.go,
// config/file.go). Nothing runs concurrently, so that a seed is a whole run:
//
//	go test ./test/sim                     forty seeds
//	go test ./test/sim -sim.seeds=20000    a soak
//	go test ./test/sim -sim.seed=7 -v      one seed, with all that happens in it
//
// A run installs a control plane, breaks it for some minutes, heals it, and cuts
// the power once more. rules.go says what must hold at every step, story.go what
// must be reached by when.
package sim
