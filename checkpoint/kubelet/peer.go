package kubelet

import (
	"context"
	"net"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// peerCredentials say of every answer which process gave it, so that answers of a
// kubelet and of its successor are told apart.
type peerCredentials struct {
	credentials.TransportCredentials
}

func newPeerCredentials() credentials.TransportCredentials {
	return peerCredentials{insecure.NewCredentials()}
}

type process struct {
	credentials.AuthInfo
	pid int
}

func (c peerCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	raw := conn
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, conn)
	return conn, process{info, peerPID(raw)}, err
}

func (c peerCredentials) Clone() credentials.TransportCredentials {
	return peerCredentials{c.TransportCredentials.Clone()}
}

// peerPID is the process that listens at the other end (SO_PEERCRED, unix(7)), or 0
// if it is in no process namespace that this process sees.
func peerPID(conn net.Conn) int {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if c, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(c.Pid)
		}
	})
	return pid
}

// pid is the process that answered, or 0.
func pid(p peer.Peer) int {
	answered, _ := p.AuthInfo.(process)
	return answered.pid
}
