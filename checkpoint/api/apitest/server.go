// Package apitest is an API server on a loopback socket, as far as
// pod-checkpointer asks one: real HTTPS, real objects in protobuf or JSON, real
// Status answers, and everything that goes wrong with a real one.
package apitest

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Token is the bearer token that a new Server accepts.
const Token = "apitest-token"

// Server is one API server, safe for concurrent use. It keeps its address and
// its objects, as etcd would, while its process is killed and started again.
type Server struct {
	t         testing.TB
	authority authority
	address   string

	mu       sync.Mutex
	process  io.Closer     // nil: killed
	hanging  chan struct{} // closed: running; open: stopped, as by SIGSTOP
	state    state
	faults   []fault
	before   func(*http.Request)
	accepts  func(*http.Request) bool
	pageSize int
	requests []string
	watches  int

	tokenLimit  time.Duration
	connections map[*stoppableConn]bool // open ones
}

// Start runs a Server until the test ends. It holds the namespace kube-system
// and nothing else.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, authority: newAuthority(t), address: "127.0.0.1:0", state: newState(), connections: make(map[*stoppableConn]bool)}
	s.hanging = make(chan struct{})
	close(s.hanging)
	s.AcceptToken(Token)
	s.Restart()
	t.Cleanup(s.Kill)
	return s
}

// URL is where the server listens, the same after a Restart.
func (s *Server) URL() string { return "https://" + s.address }

// Kubeconfig writes a kubeconfig with Token and returns its path.
func (s *Server) Kubeconfig() string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	s.WriteKubeconfig(path, &clientcmdapi.AuthInfo{Token: Token})
	return path
}

// WriteKubeconfig writes a kubeconfig for user to path.
func (s *Server) WriteKubeconfig(path string, user *clientcmdapi.AuthInfo) {
	s.t.Helper()
	config := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: s.URL(), CertificateAuthorityData: s.authority.certificate}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": user},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}
	data, err := clientcmd.Write(config)
	require.NoError(s.t, err)
	require.NoError(s.t, os.WriteFile(path, data, 0o600))
}

// WriteServiceAccount writes what the kubelet mounts in a pod, with token, to the
// directory dir, which it makes if needed.
func (s *Server) WriteServiceAccount(dir, token string) {
	s.t.Helper()
	require.NoError(s.t, os.MkdirAll(dir, 0o700))
	require.NoError(s.t, os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600))
	require.NoError(s.t, os.WriteFile(filepath.Join(dir, "ca.crt"), s.authority.certificate, 0o600))
}

// Kill ends the server's process: its connections are reset and new ones refused.
func (s *Server) Kill() {
	s.mu.Lock()
	process := s.process
	s.process = nil
	s.mu.Unlock()
	if process != nil {
		_ = process.Close()
	}
}

// Reset is Kill by a kernel that also resets the connections.
func (s *Server) Reset() {
	s.mu.Lock()
	for c := range s.connections {
		_ = c.Conn.(*net.TCPConn).SetLinger(0)
		_ = c.Conn.Close()
	}
	s.mu.Unlock()
	s.Kill()
}

// running is a process that serves. Its listener is closed by itself, because
// http.Server does not know it before Serve has begun.
type running struct {
	listener net.Listener
	server   *http.Server
}

func (r running) Close() error {
	return errors.Join(r.listener.Close(), r.server.Close())
}

// Restart ends the process, if there is one, and starts another at the same address.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	listener, err := net.Listen("tcp", s.address)
	require.NoError(s.t, err)
	s.address = listener.Addr().String()
	process := &http.Server{
		Handler:   http.HandlerFunc(s.serve),
		TLSConfig: s.authority.serverConfig(s.t),
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	s.mu.Lock()
	s.process = running{listener, process}
	s.mu.Unlock()
	go func() { _ = process.Serve(tls.NewListener(stoppable{listener, s}, process.TLSConfig)) }()
}

// BlackHole ends the process and leaves its address in such a way that the
// kernel drops what is sent to it, as a dead host does, until Restart.
func (s *Server) BlackHole() {
	s.t.Helper()
	s.Kill()
	address, err := net.ResolveTCPAddr("tcp4", s.address)
	require.NoError(s.t, err)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(s.t, err)
	listener := os.NewFile(uintptr(fd), s.address)
	require.NoError(s.t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	require.NoError(s.t, unix.Bind(fd, &unix.SockaddrInet4{Port: address.Port, Addr: [4]byte(address.IP.To4())}))
	require.NoError(s.t, unix.Listen(fd, 0)) // room for one, that nobody accepts
	filler, err := net.Dial("tcp", s.address)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = filler.Close() })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = listener
}

// Hang stops the process as SIGSTOP does: the kernel goes on accepting
// connections and what is sent on them, and nothing is ever answered.
func (s *Server) Hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hanging = make(chan struct{})
}

// Continue ends Hang.
func (s *Server) Continue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.hanging:
	default:
		close(s.hanging)
	}
}

// Connections returns how many connections the server has open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.connections)
}

func (s *Server) resumed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hanging
}

// stoppable gives connections on which nothing arrives while the server hangs.
type stoppable struct {
	net.Listener
	server *Server
}

func (l stoppable) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &stoppableConn{Conn: connection, server: l.server, closed: make(chan struct{})}
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	l.server.connections[c] = true
	return c, nil
}

type stoppableConn struct {
	net.Conn
	server *Server
	once   sync.Once
	closed chan struct{}
}

func (c *stoppableConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select { // after the read: the one that was waiting when Hang came must not answer either
	case <-c.server.resumed():
		return n, err
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *stoppableConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.server.mu.Lock()
		defer c.server.mu.Unlock()
		delete(c.server.connections, c)
	})
	return c.Conn.Close()
}
