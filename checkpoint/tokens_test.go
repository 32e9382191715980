package checkpoint

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

const year = 365 * 24 * time.Hour

var (
	rootCA = api.Ref{Kind: api.ConfigMap, Namespace: "kube-system", Name: "kube-root-ca.crt"}
	robot  = api.Ref{Kind: api.ServiceAccount, Namespace: "kube-system", Name: "robot"}
)

// withToken mounts the tokens of a service account as the API server's admission does,
// one for each audience.
func withToken(audiences ...string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.ServiceAccountName = "robot"
		var source v1.ProjectedVolumeSource
		for _, audience := range audiences {
			source.Sources = append(source.Sources, v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{
				Path: "token" + audience, Audience: audience, ExpirationSeconds: new(int64(3607)),
			}})
		}
		source.Sources = append(source.Sources, v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{
			LocalObjectReference: v1.LocalObjectReference{Name: rootCA.Name}, Items: []v1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
		}})
		name := "kube-api-access-" + map[types.UID]string{"parent": "b2d4f", "another": "g5h6j"}[pod.UID] // as random as that is
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Projected: &source}})
		c := &pod.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name, MountPath: serviceAccount, ReadOnly: true})
	}
}

// authority gives out tokens as the API server does.
type authority struct {
	audiences []string
	account   string // UID
	of        string // UID of the Node
	life      time.Duration
	off       time.Duration // by which its clock is behind
	issued    int
}

func (i *authority) issue() api.Token {
	i.issued++
	type object = map[string]any
	now := time.Now().Add(-i.off)
	claims, _ := json.Marshal(object{
		"iat": now.Unix(), "exp": now.Add(i.life).Unix(), "aud": i.audiences, "jti": i.issued,
		"kubernetes.io": object{"namespace": "kube-system", "serviceaccount": object{"name": "robot", "uid": i.account}, "node": object{"uid": i.of}},
	})
	value := "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".c2lnbmF0dXJl"
	return api.Token{Value: value, Issued: now, Expires: now.Add(i.life)}
}

// tokenNode is a node with one parent that mounts tokens, in a synctest bubble.
type tokenNode struct {
	*node
	view api.View
	authority
}

func newTokenNode(t *testing.T, audiences ...string) *tokenNode {
	n := &tokenNode{node: newNode(t), authority: authority{audiences: []string{"https://issuer"}, account: "robot-uid", of: "node-uid", life: year}}
	n.config.APIEndpoint = "https://10.0.0.1:6443"
	n.sources.tokens = map[TokenWant]said[api.Token]{}
	n.view = api.View{
		NodeUID: "node-uid", Audiences: []string{"https://issuer"},
		ConfigMaps: map[api.Ref]*v1.ConfigMap{rootCA: {Data: map[string]string{"ca.crt": "the CA"}}},
		Accounts:   map[api.Ref]types.UID{robot: "robot-uid"},
	}
	n.see(parent(t, "parent", withToken(audiences...)))
	return n
}

// see has the API server list these pods.
func (n *tokenNode) see(pods ...*v1.Pod) {
	n.view.Pods = nil
	for _, pod := range pods {
		n.view.Pods = append(n.view.Pods, *pod)
	}
	n.again()
}

// again is another View.
func (n *tokenNode) again() {
	view := n.view
	n.sources.api.value = &view
}

// serve answers the errands of the last pass.
func (n *tokenNode) serve() (asked []TokenWant) {
	asked = n.errands().Tokens
	answers := map[TokenWant]said[api.Token]{}
	for _, want := range asked {
		answer, ok := n.sources.tokens[want]
		if !ok || answer.err != nil {
			answer = said[api.Token]{value: n.issue()}
		}
		answers[want] = answer
	}
	n.sources.tokens = answers
	return asked
}

// keep saves the parent, until nothing is to be done any more.
func (n *tokenNode) keep() {
	n.t.Helper()
	for range 2 {
		_, d := n.look()
		if d.draft != nil {
			_, err := n.store.Commit(n.key, *d.draft)
			require.NoError(n.t, err)
		}
		n.serve()
	}
	_, d := n.look()
	require.NotNil(n.t, d.draft)
	_, err := n.store.Commit(n.key, *d.draft)
	require.NoError(n.t, err)
	n.settled()
}

// settled: a daemon that has just been started finds its parent saved, and asks for nothing.
func (n *tokenNode) settled() {
	n.t.Helper()
	n.forgetAll()
	w, _ := n.look()
	require.Empty(n.t, n.errands().Tokens)
	require.False(n.t, seen(n.t, w).Changed)
}

func (n *tokenNode) forgetAll() {
	n.drawn, n.content, n.sources.tokens = nil, map[store.Key]contents{}, map[TokenWant]said[api.Token]{}
}

func (n *tokenNode) generation() int64 {
	record, _ := n.store.Workload(n.key)
	return record.Generations[0].Seq
}

func inBubble(t *testing.T, audiences []string, test func(t *testing.T, n *tokenNode)) {
	synctest.Test(t, func(t *testing.T) { test(t, newTokenNode(t, audiences...)) })
}

func TestATokenIsAskedForOnceAndKeptInTheGeneration(t *testing.T) {
	inBubble(t, []string{"", "vault"}, func(t *testing.T, n *tokenNode) {
		w, d := n.look()
		require.Equal(t, "token of service account kube-system/robot: it is being asked for", w.API.Why())
		require.Nil(t, d.draft)
		want := TokenWant{Namespace: "kube-system", AccountUID: "robot-uid", NodeUID: "node-uid", TokenRef: snapshot.TokenRef{ServiceAccount: "robot"}}
		vault := want
		vault.Audience = "vault"
		require.Equal(t, []TokenWant{want, vault}, n.errands().Tokens)

		own := n.issue()
		n.sources.tokens[want] = said[api.Token]{value: own}
		w, _ = n.look()
		require.Equal(t, "token of service account kube-system/robot for vault: it is being asked for", w.API.Why())
		n.audiences = []string{"vault"}
		n.sources.tokens[vault] = said[api.Token]{value: n.issue()}
		w, d = n.look()
		require.True(t, seen(t, w).Changed)
		require.Equal(t, own.Value, string(fileOf(t, d, "token")))
		require.Equal(t, n.sources.tokens[vault].value.Value, string(fileOf(t, d, "tokenvault")))
		_, err := n.store.Commit(n.key, *d.draft)
		require.NoError(t, err)
		n.settled()

		n.see(parent(t, "another", withToken("", "vault")))
		w, _ = n.look()
		require.False(t, seen(t, w).Changed, "a successor with the same spec is the same generation")
		require.Empty(t, n.errands().Tokens)
	})
}

func fileOf(t *testing.T, d details, path string) []byte {
	t.Helper()
	for _, v := range d.draft.Volumes {
		for _, f := range v.Files {
			if f.Path == path {
				return f.Data
			}
		}
	}
	require.FailNow(t, "no such file: "+path)
	return nil
}

func TestATokenIsRenewedDailyOrAtFourFifthsOfItsLife(t *testing.T) {
	for life, fresh := range map[time.Duration]time.Duration{year: 24 * time.Hour, time.Hour: 48 * time.Minute} {
		inBubble(t, []string{""}, func(t *testing.T, n *tokenNode) {
			n.life = life
			n.keep()
			before := n.issued
			time.Sleep(fresh - time.Minute)
			n.settled()
			time.Sleep(time.Minute)
			w, _ := n.look()
			require.Len(t, n.errands().Tokens, 1)
			require.False(t, seen(t, w).Changed, "the old one counts until there is a new one")
			n.serve()
			w, d := n.look()
			require.True(t, seen(t, w).Changed)
			_, err := n.store.Commit(n.key, *d.draft)
			require.NoError(t, err)
			n.settled()
			require.Equal(t, before+1, n.issued)
			require.EqualValues(t, 2, n.generation())
		})
	}
}

func TestATokenThatCantBeRenewedCountsToItsEnd(t *testing.T) {
	inBubble(t, []string{""}, func(t *testing.T, n *tokenNode) {
		n.life = time.Hour
		n.keep()
		time.Sleep(50 * time.Minute)
		n.look()
		refused := said[api.Token]{err: errors.New("forbidden: a Role must allow it")}
		n.sources.tokens[n.errands().Tokens[0]] = refused
		w, d := n.look()
		require.False(t, seen(t, w).Changed)
		require.Equal(t, []string{"TokenNotRenewed: the token of service account kube-system/robot counts until 2000-01-01T01:00:00Z: forbidden: a Role must allow it"}, d.findings)

		time.Sleep(10 * time.Minute)
		w, d = n.look()
		require.Equal(t, "token of service account kube-system/robot: forbidden: a Role must allow it", w.API.Why())
		require.Nil(t, d.draft)
		require.EqualValues(t, 1, n.generation(), "and the generation stays")

		n.forgetAll()
		n.look()
		n.serve()
		w, _ = n.look()
		require.True(t, seen(t, w).Changed)
	})
}

func TestATokenOfAnotherIsNone(t *testing.T) {
	for what, change := range map[string]func(*tokenNode){
		"Node":            func(n *tokenNode) { n.view.NodeUID, n.of = "new-node-uid", "new-node-uid" },
		"service account": func(n *tokenNode) { n.view.Accounts = map[api.Ref]types.UID{robot: "new-uid"}; n.account = "new-uid" },
		"audience":        func(n *tokenNode) { n.view.Audiences = []string{"https://another"}; n.audiences = n.view.Audiences },
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, []string{""}, func(t *testing.T, n *tokenNode) {
				n.keep()
				change(n)
				n.again()
				w, _ := n.look()
				_, known := w.API.Value()
				require.False(t, known)
				require.Len(t, n.serve(), 1)
				n.keep()
				require.EqualValues(t, 2, n.generation())
			})
		})
	}
}

func TestWhoMayNotReadAccountsOrHasNoTokenStillKeepsTokens(t *testing.T) {
	inBubble(t, []string{"", "vault"}, func(t *testing.T, n *tokenNode) {
		n.view.Accounts, n.view.Audiences = nil, nil
		n.again()
		n.look()
		for i, want := range n.errands().Tokens {
			n.audiences = [][]string{{"https://issuer"}, {"vault"}}[i]
			n.sources.tokens[want] = said[api.Token]{value: n.issue()}
		}
		_, d := n.look()
		_, err := n.store.Commit(n.key, *d.draft)
		require.NoError(t, err)
		n.settled()
	})
}

func TestNoTokenIsAskedForWhatCantBeStatic(t *testing.T) {
	inBubble(t, []string{""}, func(t *testing.T, n *tokenNode) {
		n.see(parent(t, "parent", withToken(""), unsupported))
		w, _ := n.look()
		require.Contains(t, seen(t, w).Refused, "persistentVolumeClaim")
		require.Empty(t, n.errands())

		n.see(parent(t, "parent", withToken("")))
		n.config.DryRun = true
		n.forgetAll()
		w, _ = n.look()
		require.Equal(t, "token of service account kube-system/robot: a dry run asks for none", w.API.Why())
		require.Empty(t, n.errands())
		n.config.DryRun = false

		n.keep()
		time.Sleep(24 * time.Hour)
		n.config.DryRun = true
		w, d := n.look()
		require.False(t, seen(t, w).Changed, "the old one counts")
		require.NotNil(t, d.draft)
		require.Empty(t, n.errands().Tokens)
		n.config.DryRun = false

		n.view.Accounts, n.view.Missing = nil, map[api.Ref]bool{robot: true}
		n.again()
		w, _ = n.look()
		require.Contains(t, seen(t, w).Refused, `there is no ServiceAccount "robot"`)
		require.Empty(t, n.errands())
	})
}

// With a clock that is wrong by more than a day every token is old, or from the future.
func TestAWrongClockAsksForNoMoreThanOne(t *testing.T) {
	for _, off := range []time.Duration{48 * time.Hour, -48 * time.Hour} {
		inBubble(t, []string{""}, func(t *testing.T, n *tokenNode) {
			n.off = off
			n.look()
			n.serve()
			for range 3 {
				_, d := n.look()
				_, err := n.store.Commit(n.key, *d.draft)
				require.NoError(t, err)
				n.serve()
			}
			require.Len(t, n.errands().Tokens, 1)
			require.Equal(t, 1, n.issued)
			require.EqualValues(t, 1, n.generation())
		})
	}
}
