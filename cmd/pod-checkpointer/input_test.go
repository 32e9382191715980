package main

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api/apitest"
	"github.com/pod-checkpointer/pod-checkpointer/cri/critest"
)

// Each of these is a clear line in /healthz, and over without a restart once its
// cause is gone.

func TestRuntimeThatIsOldOrHangs(t *testing.T) {
	runtime := critest.Start(t)
	runtime.Run(critest.Sandbox{ID: "s", UID: "u", Name: "pod-checkpointer", Namespace: "kube-system", Ready: true})
	runtime.Down()
	runtime.UpWithoutV1()
	t.Parallel() // they wait for the sources' beats
	m := boot(t, func(string) {}, "--cri-endpoint="+runtime.Endpoint())
	m.healthz(true, "does not serve CRI runtime.v1")
	runtime.Down()
	runtime.Up()
	m.healthz(false, "runtime unknown: ")
	runtime.Hang()
	m.healthz(true, "runtime unknown: ")
	runtime.Resume()
	m.healthz(false, "runtime unknown: ")
	require.Zero(t, m.end(), m.log.String())
}

func TestNodeThatTheAPIDoesNotKnow(t *testing.T) {
	server := apitest.Start(t)
	t.Parallel() // they wait for the sources' beats
	m := boot(t, func(string) {}, "--kubeconfig="+server.Kubeconfig())
	m.healthz(true, `there is no node "master-1": it has not registered yet, or --node-name is wrong`)
	server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "master-1", UID: "node"}})
	m.healthz(false, "api unknown: ")
	require.Zero(t, m.end(), m.log.String())
}

func TestCredentialsThatExpire(t *testing.T) {
	server := apitest.Start(t)
	server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "master-1", UID: "node"}})
	config := server.Kubeconfig()
	t.Parallel() // they wait for the sources' beats
	m := boot(t, func(string) {}, "--kubeconfig="+config)
	m.healthz(true, "ok\n")
	m.healthz(false, "api unknown: ")
	server.Accept(func(*http.Request) bool { return false })
	server.Kill() // a watch may outlive its credentials, until the next View
	server.Restart()
	m.healthz(true, "api unknown: get namespaces kube-system: credentials not accepted: those of kubeconfig "+config)
	server.Accept(func(*http.Request) bool { return true })
	m.healthz(false, "api unknown: ")
	require.Zero(t, m.end(), m.log.String())
}

func TestStaticPodDirectoryThatGoesAndComesBack(t *testing.T) {
	t.Parallel() // they wait for the sources' beats
	m := boot(t, func(dir string) { require.NoError(t, os.Mkdir(filepath.Join(dir, "manifests"), 0o755)) })
	m.healthz(true, "ok\n")
	m.healthz(false, "manifests unknown: ")
	require.NoError(t, os.Remove(filepath.Join(m.dir, "manifests")))
	m.healthz(true, "manifests unknown: static pod directory (--static-pod-dir): ")
	require.NoError(t, os.Mkdir(filepath.Join(m.dir, "manifests"), 0o755))
	m.healthz(false, "manifests unknown: ")
	require.Zero(t, m.end(), m.log.String())
}
