package api_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api/apitest"
)

func TestBrokenKubeconfigIsNamedAndRecovers(t *testing.T) {
	s := start(t)
	good := s.Kubeconfig()
	data, err := os.ReadFile(good)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	c := client(t, path)

	with := func(old, replacement string) string {
		require.Contains(t, string(data), old)
		return strings.Replace(string(data), old, replacement, 1)
	}
	const token = "token: " + apitest.Token
	broken := []struct{ content, says string }{
		{"", "it names no cluster"},
		{"{}", "it names no cluster"},
		{secretValue, ""}, // a token where a kubeconfig should be
		{"{token: " + secretValue, ""},
		{"a: b: " + secretValue, ""},
		{secretValue + ": 1\n" + secretValue + ": 2", ""},
		{"apiVersion: v9\ntoken: " + secretValue, ""},
		{string(data[:len(data)/2]), ""},
		{with("LS0t", "----"), "illegal base64"},
		{with("LS0t", "AAAA"), "unable to load root certificates"},
		{with("current-context: x", "current-context: other"), "context was not found for specified context: other"},
		{with(token, "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}"), "plugin"},
		{with(token, "tokenFile: absent"), filepath.Join(filepath.Dir(path), "absent") + ": no such file"},
		{with(token, "{client-certificate: absent, client-key: absent}"), "absent: no such file"},
	}
	_, err = view(t, c)
	require.EqualError(t, err, "use credentials: file does not exist: "+path+": write it, or correct --kubeconfig")
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, b := range broken {
		require.NoError(t, os.WriteFile(path, []byte(b.content), 0o600))
		_, err = view(t, c)
		require.ErrorIs(t, err, api.ErrCredentials, b.content)
		require.ErrorContains(t, err, "use credentials of kubeconfig "+path+": ", b.content)
		require.ErrorContains(t, err, b.says, b.content)
	}
	require.Empty(t, s.Requests())

	require.NoError(t, os.WriteFile(path, data, 0o600))
	_, err = view(t, c)
	require.NoError(t, err)
}

func TestReplacedTokenCountsAtOnce(t *testing.T) {
	s := start(t)
	dir := t.TempDir()
	kubeconfig, token := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "token")
	s.WriteKubeconfig(kubeconfig, &clientcmdapi.AuthInfo{TokenFile: "token"}) // beside the kubeconfig
	c := client(t, kubeconfig)
	for _, value := range []string{secretValue + "1", secretValue + "2"} {
		s.AcceptToken(value)
		_, err := view(t, c)
		require.Error(t, err)
		require.NoError(t, os.WriteFile(token, []byte(value+"\n"), 0o600))
		_, err = view(t, c)
		require.NoError(t, err)
	}
	require.NoError(t, os.WriteFile(token, nil, 0o600))
	_, err := view(t, c)
	require.ErrorIs(t, err, api.ErrCredentials)
}

func TestExpiredCertificateIsNamedAndReplaced(t *testing.T) {
	s := start(t)
	dir := t.TempDir()
	kubeconfig, cert, key := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	s.WriteKubeconfig(kubeconfig, &clientcmdapi.AuthInfo{ClientCertificate: cert, ClientKey: key})
	install := func(user string, expires time.Time) {
		certPEM, keyPEM := s.ClientCertificate(user, expires)
		require.NoError(t, os.WriteFile(cert, certPEM, 0o600))
		require.NoError(t, os.WriteFile(key, keyPEM, 0o600))
	}
	c := client(t, kubeconfig)

	s.AcceptCertificate("new")
	install("old", time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC))
	_, err := view(t, c)
	require.ErrorIs(t, err, api.ErrUnauthorized)
	require.ErrorContains(t, err, "those of kubeconfig "+kubeconfig+": the client certificate expired at 2020-01-02T03:04:05Z")

	install("new", time.Now().Add(time.Hour))
	_, err = view(t, c)
	require.NoError(t, err)

	_, otherKey := s.ClientCertificate("new", time.Now().Add(time.Hour))
	require.NoError(t, os.WriteFile(key, otherKey, 0o600)) // between the two renames of a rotation
	_, err = view(t, c)
	require.ErrorIs(t, err, api.ErrCredentials)
	require.ErrorContains(t, err, "private key does not match public key")
}

func TestUntrustedServerGetsNoToken(t *testing.T) {
	s, other := start(t), start(t)
	path := other.Kubeconfig()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.Replace(data, []byte(other.URL()), []byte(s.URL()), 1), 0o600))
	_, err = view(t, client(t, path))
	require.ErrorIs(t, err, api.ErrUnreachable)
	require.ErrorContains(t, err, "certificate signed by unknown authority")
	require.Empty(t, s.Requests())
}

// What a dead server leaves behind must not reach the next View.
func TestEachViewHasItsOwnConnection(t *testing.T) {
	s := start(t)
	c := client(t, s.Kubeconfig())
	fresh := func() {
		_, err := view(t, c)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return s.Connections() == 0 }, 5*time.Second, time.Millisecond)
	}
	fresh()
	s.Restart()
	fresh()

	s.Hang()
	_, err := viewWithin(t, c, 50*time.Millisecond)
	require.ErrorIs(t, err, api.ErrTimeout)
	s.Restart() // killed while it hung
	s.Continue()
	fresh()

	s.Hang()
	_, err = viewWithin(t, c, 50*time.Millisecond)
	require.ErrorIs(t, err, api.ErrTimeout)
	s.Continue() // the handshake that it began must have ended
	fresh()
}

// SYNs that nobody answers: connect(2) would wait for two minutes.
func TestBlackHoleEndsWithTheDeadline(t *testing.T) {
	s := start(t)
	c := client(t, s.Kubeconfig())
	s.BlackHole()
	_, err := viewWithin(t, c, 50*time.Millisecond)
	require.ErrorIs(t, err, api.ErrTimeout)
	require.Eventually(t, func() bool { return !dialing() }, 5*time.Second, time.Millisecond, "it goes on dialing")
	s.Restart()
	_, err = view(t, c)
	require.NoError(t, err)
}

func dialing() bool {
	var stacks bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
	return strings.Contains(stacks.String(), "net.(*sysDialer)")
}

func TestProtobufOverHTTP1(t *testing.T) {
	s := start(t)
	s.Accept(func(r *http.Request) bool {
		return r.ProtoMajor == 1 && r.Header.Get("Accept-Encoding") == "" &&
			r.Header.Get("Accept") == "application/vnd.kubernetes.protobuf,application/json"
	})
	_, err := view(t, client(t, s.Kubeconfig()))
	require.NoError(t, err)
}

func TestForeignAnswersAreUnknownAndNotQuoted(t *testing.T) {
	html := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<html>" + secretValue))
	}
	for what, tt := range map[string]struct {
		part   string
		answer http.HandlerFunc
		err    error
	}{
		"login page":     {"/", html, api.ErrAnswer},
		"error page":     {"/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, secretValue, http.StatusBadGateway) }, api.ErrServer},
		"empty":          {"/pods", reply(200, ""), api.ErrAnswer},
		"no kind":        {"/pods", reply(200, `{"items":[],"x":"`+secretValue+`"}`), api.ErrAnswer},
		"broken":         {"/pods", reply(200, `{"kind":"PodList","apiVersion":"v1","items":["`+secretValue), api.ErrAnswer},
		"another kind":   {"/pods", reply(200, `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"5"}}`), api.ErrAnswer},
		"another group":  {"/pods", reply(200, `{"kind":"PodList","apiVersion":"v9","metadata":{"resourceVersion":"5"}}`), api.ErrAnswer},
		"no version":     {"/pods", reply(200, `{"kind":"PodList","apiVersion":"v1"}`), api.ErrAnswer},
		"version 0":      {"/pods", reply(200, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"0"}}`), api.ErrAnswer},
		"another node":   {"/pods", reply(200, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[{"metadata":{"namespace":"kube-system","name":"p"},"spec":{"nodeName":"master-1"}}]}`), api.ErrAnswer},
		"success":        {"/pods", reply(200, `{"kind":"Status","apiVersion":"v1","status":"Success"}`), api.ErrAnswer},
		"another object": {"/nodes/", reply(200, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"master-1","uid":"u"}}`), api.ErrAnswer},
		"object, no UID": {"/nodes/", reply(200, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"master-0"}}`), api.ErrAnswer},
		"redirected":     {"/pods", http.RedirectHandler("http://127.0.0.1:1/", http.StatusFound).ServeHTTP, api.ErrAnswer},
		"cut off":        {"/pods", cutOff, api.ErrUnreachable},
		"no content type": {"/pods", func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = w.Write([]byte(secretValue))
		}, api.ErrAnswer},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.Answer(tt.part, tt.answer)
			_, err := view(t, client(t, s.Kubeconfig()))
			require.ErrorIs(t, err, tt.err)
		})
	}
	t.Run("secret", func(t *testing.T) {
		s := start(t)
		s.Put(pod("kube-system", "p", "master-0", "certs"))
		s.Answer("/secrets/", reply(200, `{"metadata":{"name":"certs"},"data":{"key":"`+secretValue+`"}}`))
		v, err := view(t, client(t, s.Kubeconfig()))
		require.NoError(t, err)
		require.ErrorIs(t, v.Failed[name("certs")], api.ErrAnswer)
	})
}

// client-go logs through klog, which writes to stderr unless it is told otherwise.
func TestNothingIsLogged(t *testing.T) {
	var log bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&log)
	t.Cleanup(func() {
		klog.Flush()
		klog.LogToStderr(true)
	})
	s := start(t)
	s.Answer("/pods", cutOff)
	s.Answer("/nodes/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Warning", `299 - "something old"`)
		reply(200, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"master-0","uid":"u"}}`)(w, r)
	})
	_, err := view(t, client(t, s.Kubeconfig()))
	require.ErrorIs(t, err, api.ErrUnreachable)
	klog.Flush()
	assert.Empty(t, log.String())
}

// cutOff ends the connection in the middle of an answer.
func cutOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "1000")
	_, _ = w.Write([]byte(`{"kind":"PodList","x":"` + secretValue))
	panic(http.ErrAbortHandler)
}
