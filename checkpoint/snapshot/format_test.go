package snapshot

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A generation that an earlier daemon saved is one that this daemon can start, with
// the lock and the readiness that it had.
func TestOldGenerationsStart(t *testing.T) {
	archive, err := txtar.ParseFile("../store/testdata/format-1.txtar")
	require.NoError(t, err)
	read := 0
	for _, f := range archive.Files {
		if !strings.Contains(f.Name, "/generations/") {
			continue
		}
		read++
		var record struct{ Body struct{ Pod json.RawMessage } }
		require.NoError(t, json.Unmarshal(f.Data, &record))
		pod, err := Decode(record.Body.Pod)
		require.NoError(t, err)
		facts, err := FactsOf(pod)
		require.NoError(t, err)
		assert.Equal(t, &Lock{Name: "kube-apiserver", Path: lockDir + "/kube-apiserver.lock", Container: "kube-apiserver"}, facts.Lock)
		assert.Equal(t, "/opt/pod-checkpointer/bin/lock-exec", facts.LockExec)
		assert.Equal(t, "https 127.0.0.1:6443 /readyz", facts.Ready.Scheme+" "+facts.Ready.Host+" "+facts.Ready.Path)
		assert.Zero(t, facts.Grace)
		manifest, err := Manifest(pod, activation, "master-1", 1, map[string]string{"certs": "/state/activations/" + activation + "/certs"})
		require.NoError(t, err)
		assert.Contains(t, string(manifest), "/state/activations/"+activation+"/certs")
	}
	require.Equal(t, 2, read)
}
