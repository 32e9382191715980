// Package bench measures what a user waits for, and puts each number beside
// its limit. Nothing is asserted: a number depends on the machine, so that
// TestBench prints a table, says "missed" where a limit is, and shows there in
// which stage the time went.
//
//	make bench
//	go test -tags grpcnotrace,e2e -count=1 -timeout 60m -v ./test/bench -run TestBench/start -bench.runs=3
//
// It needs what test/lab needs: Linux and root. Eleven runs take about a quarter
// of an hour. The parts are TestBench/start, /lock, /lab and /size; -bench.stages
// shows the stages of every row. Ctrl-C takes the labs down and prints what was
// measured until then.
//
// How to read it:
//
//   - "fsync" is the price of one durable file on this disk: 4 KiB are written,
//     fsynced and renamed, and the directory is fsynced. A start of the daemon
//     makes about twenty fsyncs, so that its time is to be seen beside this one.
//   - "start" runs from just before the daemon's exec until it says that the
//     manifest and its directory are on stable storage. The state directory
//     holds one generation of manifests/control-plane/kube-apiserver.yaml with its
//     Secret; the API server refuses connections, or accepts and never answers,
//     or the kernel drops what is sent to it. All must take the same time.
//   - "lock" runs from just before the SIGKILL of the holder until the program
//     that the waiter became has read the clock: the start of a small Go program
//     is in it.
//   - "handoff" runs from the last answer of the checkpoint to the first one of
//     the parent. Its peer is the same parent, in the same pod, in the same boot,
//     waiting behind an API server on the node itself that is killed by hand:
//     nothing else starts or stops then, so that it is what this API server
//     needs, and not what another way to hand over would. Both holders had
//     answered for the handoff's settling time before.
//   - "power cut" runs from the start of the kubelet until the API server
//     answers. Its peer is the same API server as a plain static pod in a lab of
//     its own, with nothing of ours. The two labs boot in turn, and while one has
//     power the other has none.
//
// The API server answers when /readyz is 200 on a new connection. It is asked
// every 5 ms until it listens and every 25 ms from then on, so that a time is up
// to 25 ms too long; more often would be work that keeps it from starting.
// Where a limit is a factor, it is that of the two medians.
package bench
