package lab

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAuditTellsOfEachRequestOnce(t *testing.T) {
	l := sample(t, Options{})
	got, err := l.Audit()
	require.NoError(t, err)
	require.Empty(t, got, "no API server has written yet")

	require.NoError(t, os.MkdirAll(l.logDir(), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(l.logDir(), auditLog), []byte(
		`{"kind":"Event","auditID":"1","stage":"ResponseStarted","verb":"watch","objectRef":{"resource":"secrets","namespace":"kube-system","name":"kube-apiserver","apiVersion":"v1"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.678900Z"}
{"kind":"Event","auditID":"2","stage":"ResponseComplete","verb":"create","objectRef":{"resource":"serviceaccounts","subresource":"token","namespace":"kube-system","name":"pod-checkpointer","apiVersion":"v1"},"responseStatus":{"code":403},"requestReceivedTimestamp":"2026-01-02T03:04:06.000000Z"}
{"kind":"Event","auditID":"1","stage":"ResponseComplete","verb":"watch","objectRef":{"resource":"secrets"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.678900Z"}
{"kind":"Event","auditID":"3","stage":"Resp`), 0o600))
	got, err = l.Audit()
	require.NoError(t, err)
	require.Equal(t, []Request{
		{At: time.Date(2026, 1, 2, 3, 4, 5, 678900000, time.UTC), Verb: "watch", Resource: "secrets", Namespace: "kube-system", Name: "kube-apiserver", Code: 200},
		{At: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC), Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "kube-system", Name: "pod-checkpointer", Code: 403},
	}, got)
}
