// Package e2e runs the product on a real control plane whose power is cut.
//
//	go test -tags grpcnotrace,e2e -count=1 -v ./test/e2e                    # all scenarios
//	go test -tags grpcnotrace,e2e -count=1 -v ./test/e2e -run 'TestReboot$' -keep
//	go test -tags grpcnotrace,e2e -count=1 -v ./test/e2e -run 'TestReboot$' -cuts 1 -kubernetes v1.34.4 -containerd 1.6.20
//
// It needs what package lab needs: Linux, root, and a machine with Go and
// Debian's packages. One cluster is shared by all scenarios. Each begins and
// ends in the steady state: the parent serves, nothing of a checkpoint is left.
//
// What happens is seen from outside, and not taken from the daemon's word: the
// kernel's lock table, the sockets of the node, the runtime by CRI, the static
// pod directory, and /readyz on a new connection each time. From the daemon's
// /status come its states and its reasons.
//
// While scenarios run, every 10 ms, two things are counted: the processes that
// hold the API server's lock and the sockets that listen on its port. More than
// one of either fails the run, as does a count that saw too little.
package e2e
