// Package bench measures what a user waits for, and puts each number beside
// its limit. Nothing is asserted: a number depends on the machine, so that
// TestBench prints a table, says "missed" where a limit is, and shows there in
// which stage the time went.
//
//	make bench
//	go test -tags grpcnotrace,e2e -count=1 -timeout 60m -v ./test/bench -run TestBench/start -bench.runs=3
//
// It needs what test/lab needs: Linux and root. All of it takes about half an
// hour. The parts are TestBench/start, /lock, /death, /snapshots, /rest, /lab and /size;
// -bench.stages shows the stages of every row. Ctrl-C takes the labs down and
// prints what was measured until then.
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
//   - "death of the parent" runs from the end of the API server's process, as its
//     pidfd tells here, until the daemon says that the manifest and its directory
//     are on stable storage. It is the real API server's own pod, whose checkpoint
//     the rules start at once: the kubelet is away and the daemon knows it; or the
//     pod has ended twice within ten minutes. What the dead leave, some hundred MB
//     to be freed, their watches and their clients, is part of it.
//   - "first snapshot" runs from the exec of a second daemon on a node, which knows
//     nothing of the pods in its namespace, until the last of their generations is in
//     its store. The time of the API's round trips is from its first request for them
//     to its last, by the audit log; what fsync takes is the difference between as many
//     commits to this disk and to memory. Of the whole it is the share that is shown.
//     Then one Secret changes: how long until its generation, and what was written and
//     asked for until two seconds later.
//   - "at rest" is a node of so many pods in all, five of them protected: the
//     control plane, and two that have no lock. Each copy of the daemon is seen
//     from outside by what the kernel counts for its process, 75 s after all is
//     protected and known to be good. Of memory and disk writes the worst is the
//     result, of CPU the mean. "CPU of its probes" is what else ran in its
//     container. Requests are counted in the API server's audit log. A file has
//     changed when its inode, its size or its ctime did. The limits are for 110
//     pods; the other sizes are to be read beside it.
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
