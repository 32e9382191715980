//go:build e2e

package e2e

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOldToken: a token that is bound to the Node is taken when it is more than a day
// old, and the daemon renews it then. Nobody can wait for that, nor set the clock of one
// node of a machine; so the token is made old, by the key that the API server signs with.
func TestOldToken(t *testing.T) {
	s := begin(t)
	token := s.ownToken()
	now, ok := claimsOf(token)
	require.True(s, ok)
	require.NotNil(s, now.Kubernetes.Node)
	require.True(s, s.authenticates(token, now.Audience))

	const age = 26 * time.Hour
	old := s.signed(token, -age, 0)
	require.True(s, s.authenticates(old, now.Audience), "after more than a day")
	require.False(s, s.authenticates(s.signed(token, -age, -400*24*time.Hour), now.Audience), "ended")
	s.timeline.add(time.Now(), "a token that is 26 hours old counts")

	s.leaveToken(old, age)
	leader := strings.TrimPrefix(s.eyes.sight().status.Leader, "kube-system/")
	s.kubectl("delete", "pod", "--namespace=kube-system", leader)
	s.await(soon, "the old token to be renewed", func(sight) bool {
		is, ok := claimsOf(s.ownToken())
		return ok && is.Issued >= now.Issued
	})
	s.timeline.add(time.Now(), "and is renewed")
	s.awaitSteady()
}

const credentials = "/var/lib/pod-checkpointer/kubeconfig"

var tokenIn = regexp.MustCompile(`token: "?([^"\n]+)"?`)

// ownToken is the one of the daemon's static copy.
func (s *scene) ownToken() string {
	s.Helper()
	found := tokenIn.FindStringSubmatch(contents(s, s.path(credentials)))
	require.Len(s, found, 2)
	return found[1]
}

// leaveToken puts one in its place that was written so long ago, by the file's time,
// which is the node's.
func (s *scene) leaveToken(token string, age time.Duration) {
	s.Helper()
	text := strings.Replace(contents(s, s.path(credentials)), s.ownToken(), token, 1)
	path := s.path(credentials)
	require.NoError(s, os.WriteFile(path+".old", []byte(text), 0o600))
	at := time.Now().Add(-age)
	require.NoError(s, os.Chtimes(path+".old", at, at))
	require.NoError(s, os.Rename(path+".old", path))
}

// signed is the token with times that are moved, as the API server would have signed it.
func (s *scene) signed(token string, begins, ends time.Duration) string {
	s.Helper()
	parts := strings.Split(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	require.NoError(s, err)
	var all map[string]any
	require.NoError(s, json.Unmarshal(text, &all))
	for name, by := range map[string]time.Duration{"iat": begins, "nbf": begins, "exp": ends} {
		all[name] = int64(all[name].(float64)) + int64(by/time.Second)
	}
	text, err = json.Marshal(all)
	require.NoError(s, err)
	body := parts[0] + "." + base64.RawURLEncoding.EncodeToString(text)

	sum := sha256.Sum256([]byte(body))
	r, v, err := ecdsa.Sign(rand.Reader, s.signingKey(), sum[:])
	require.NoError(s, err)
	signature := make([]byte, 64) // RFC 7518, 3.4
	r.FillBytes(signature[:32])
	v.FillBytes(signature[32:])
	return body + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// signingKey is what the API server signs tokens with.
func (s *scene) signingKey() *ecdsa.PrivateKey {
	s.Helper()
	text, err := base64.StdEncoding.DecodeString(s.kubectl("get", "secret", "kube-apiserver", "--namespace=kube-system", `--output=jsonpath={.data.sa\.key}`))
	require.NoError(s, err)
	block, _ := pem.Decode(text)
	require.NotNil(s, block)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	require.NoError(s, err)
	require.IsType(s, &ecdsa.PrivateKey{}, key)
	return key.(*ecdsa.PrivateKey)
}
