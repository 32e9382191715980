//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
)

// marker stands in every value of the corpus's Secrets.
const marker = "marker-of-corpus"

// keptSecret asserts that no file below dir has a secret in it, names included.
func (s *scene) keptSecret(dir string) {
	s.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		require.NotContains(s, path+string(data), marker)
		files++
		return err
	})
	require.NoError(s, err)
	require.NotZero(s, files, dir)
}

// mirrors are the API server's copies of static pods, as a watch shows them.
type mirrors struct {
	*scene
	stop context.CancelFunc
	done sync.WaitGroup
	seen map[string][]byte // by name: all of its versions
}

// watchMirrors begins before there is an API server, and misses none.
func (s *scene) watchMirrors() *mirrors {
	s.Helper()
	client, err := s.lab.Admin()
	require.NoError(s, err)
	m := &mirrors{scene: s, seen: map[string][]byte{}}
	var ctx context.Context
	ctx, m.stop = context.WithCancel(cluster.ctx)
	m.done.Go(func() {
		for ctx.Err() == nil {
			m.watch(ctx, client)
			select {
			case <-ctx.Done():
			case <-time.After(5 * beat):
			}
		}
	})
	s.Cleanup(func() { m.stop(); m.done.Wait() })
	return m
}

func (m *mirrors) watch(ctx context.Context, client *http.Client) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, lab.APIURL+"/api/v1/namespaces/kube-system/pods?watch=1", nil)
	if err != nil {
		return
	}
	answer, err := client.Do(request)
	if err != nil {
		return // not there yet
	}
	defer answer.Body.Close()
	for lines := bufio.NewReader(answer.Body); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var event struct {
			Object struct {
				Metadata struct {
					Name        string
					Annotations map[string]string
				}
			}
		}
		if json.Unmarshal(line, &event) == nil && event.Object.Metadata.Annotations["kubernetes.io/config.mirror"] != "" {
			name := event.Object.Metadata.Name
			m.seen[name] = append(m.seen[name], line...)
		}
	}
}

// keptSecret ends the watch, and asserts that no mirror pod has a secret in it.
func (m *mirrors) keptSecret() {
	m.Helper()
	m.stop()
	m.done.Wait()
	checkpoints, literal := 0, false
	for name, versions := range m.seen {
		require.NotContains(m, string(versions), marker, "mirror pod %s", name)
		if strings.HasPrefix(name, "corpus-") {
			checkpoints++
		}
		literal = literal || bytes.Contains(versions, []byte("of the ConfigMap")) // so much is looked at
	}
	require.Greater(m, checkpoints, 10, "mirror pods of checkpoints")
	require.True(m, literal, "a mirror pod with what stands in a ConfigMap")
	m.timeline.add(time.Now(), "no secret in %d mirror pods", checkpoints)
}

// tokensOutlive asserts that the API server takes the tokens of checkpoints when the
// pods of their parents are gone, and those of the parents no more.
func (s *scene) tokensOutlive(parents, checkpoints map[string]likeness) {
	s.Helper()
	tokens := 0
	for name, checkpoint := range checkpoints {
		require.Len(s, checkpoint.tokens, len(parents[name].tokens), name)
		for i, token := range checkpoint.tokens {
			before, of := parents[name].tokens[i], name
			own, _ := claimsOf(before)
			ours, _ := claimsOf(token)
			require.NotNil(s, own.Kubernetes.Pod, of)
			require.Nil(s, ours.Kubernetes.Pod, of)
			require.NotNil(s, ours.Kubernetes.Node, of)
			require.Greater(s, time.Duration(ours.Expires-ours.Issued)*time.Second, 300*24*time.Hour, "life of the token of %s", of)
			require.False(s, s.authenticates(before, own.Audience), "the parent's token of %s", of)
			require.True(s, s.authenticates(token, ours.Audience), "the checkpoint's token of %s", of)
			tokens++
		}
	}
	require.NotZero(s, tokens)
	s.timeline.add(time.Now(), "%d tokens outlive the pods of their parents", tokens)
}

// authenticates asks the API server whether it takes a token.
func (s *scene) authenticates(token string, audiences []string) bool {
	s.Helper()
	client, err := s.lab.Admin()
	require.NoError(s, err)
	review := authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}}
	review.APIVersion, review.Kind = "authentication.k8s.io/v1", "TokenReview"
	body, err := json.Marshal(review)
	require.NoError(s, err)
	answer, err := client.Post(lab.APIURL+"/apis/authentication.k8s.io/v1/tokenreviews", "application/json", bytes.NewReader(body))
	require.NoError(s, err)
	defer answer.Body.Close()
	require.NoError(s, json.NewDecoder(answer.Body).Decode(&review))
	require.Equal(s, http.StatusCreated, answer.StatusCode)
	return review.Status.Authenticated
}
