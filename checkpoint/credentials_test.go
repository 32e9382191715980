package checkpoint

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
)

// issuer is a keeper, and the API server that it asks.
type issuer struct {
	*keeper
	t     *testing.T
	mu    sync.Mutex // of asked, where the keeper runs by itself
	asked []api.TokenRequest
	life  time.Duration // that it gives at most
	skew  time.Duration // of its clock
	uid   string        // of the service account
	err   error
	log   bytes.Buffer
}

var account = Account{types.NamespacedName{Namespace: "kube-system", Name: "pod-checkpointer"}, "node-uid"}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{t: t, life: lifetime, uid: "account-uid"}
	c := Defaults()
	c.Node, c.StateDir, c.APIEndpoint = "master-1", t.TempDir(), "https://10.0.0.1:6443"
	source := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(source, "ca.crt"), []byte("ca"), 0o600))
	i.keeper = newKeeper(c, i.issue, source, slog.New(slog.NewTextHandler(&i.log, nil)))
	return i
}

func (i *issuer) issue(_ context.Context, r api.TokenRequest) (api.Token, error) {
	i.mu.Lock()
	i.asked = append(i.asked, r)
	i.mu.Unlock()
	if i.err != nil {
		return api.Token{}, i.err
	}
	now := time.Now().Truncate(time.Second).Add(i.skew)
	t := api.Token{Issued: now, Expires: now.Add(min(r.Lifetime, i.life)), CA: []byte("ca"), Endpoint: "https://10.0.0.1:6443"}
	t.Value = i.signed(r, t)
	return t, nil
}

// signed is a token for the service account as the API server has it now.
func (i *issuer) signed(r api.TokenRequest, t api.Token) string {
	claims := fmt.Sprintf(`{"iat":%d,"exp":%d,"kubernetes.io":{"namespace":%q,"serviceaccount":{"name":%q,"uid":%q},"node":{"uid":%q}}}`,
		t.Issued.Unix(), t.Expires.Unix(), r.ServiceAccount.Namespace, r.ServiceAccount.Name, i.uid, r.NodeUID)
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".secret"
}

// mounts has the pod's own token be one that is issued now.
func (i *issuer) mounts() {
	token := i.signed(api.TokenRequest{ServiceAccount: account.NamespacedName}, api.Token{Issued: time.Now(), Expires: time.Now().Add(time.Hour)})
	require.NoError(i.t, os.WriteFile(filepath.Join(i.source, "token"), []byte(token), 0o600))
}

// again is a check after a while; it returns how often the API server was asked.
func (i *issuer) again(after time.Duration) int {
	time.Sleep(after)
	before := len(i.asked)
	i.check(i.t.Context())
	if asked := len(i.asked) - before; asked == 0 || i.err != nil {
		return asked
	}
	// The kernel's clock is not the test's.
	if err := os.Chtimes(i.path(), time.Now(), time.Now()); !os.IsNotExist(err) {
		require.NoError(i.t, err)
	}
	return len(i.asked) - before
}

func TestCredentialsAreWrittenOnceAndRenewedDaily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		i.serve(&account)
		require.Equal(t, 1, i.again(0))
		require.Equal(t, []api.TokenRequest{{ServiceAccount: account.NamespacedName, Node: "master-1", NodeUID: "node-uid", Lifetime: 365 * 24 * time.Hour}}, i.asked)
		info, err := os.Stat(i.path())
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
		require.WithinDuration(t, time.Now().Add(lifetime), i.credentials().Expires, time.Second)
		require.Empty(t, i.credentials().Problem)

		for range 23 {
			require.Zero(t, i.again(time.Hour))
		}
		i.keeper = newKeeper(i.config, i.issue, i.source, i.keeper.log) // as after a restart
		i.serve(&account)
		require.Zero(t, i.again(59*time.Minute), "the file tells")
		require.Equal(t, 1, i.again(time.Minute))
		require.NotContains(t, i.log.String(), ".secret")
	})
}

func TestCredentialsOfAShortLifeAreRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		i.life = 10 * time.Hour
		i.serve(&account)
		require.Equal(t, 1, i.again(0))
		require.Contains(t, i.credentials().Problem, "raise its --service-account-max-token-expiration", "a node that is off for longer is told")
		require.Zero(t, i.again(8*time.Hour-time.Second))
		require.Equal(t, 1, i.again(time.Second), "at 80 %")
	})
}

// A node whose clock is wrong must not ask each minute.
func TestCredentialsAreRenewedByTheNodesOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, skew := range []time.Duration{-48 * time.Hour, 48 * time.Hour} {
			i := newIssuer(t)
			i.skew = skew
			i.serve(&account)
			require.Equal(t, 1, i.again(0))
			require.Zero(t, i.again(23*time.Hour))
			require.Equal(t, 1, i.again(time.Hour))
		}
	})
}

// By the clock of the node each token has expired when it comes.
func TestCredentialsThatHaveExpiredAreRenewedAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		i.life, i.skew = 12*time.Hour, -48*time.Hour
		i.serve(&account)
		require.Equal(t, 1, i.again(0))
		for range 3 {
			require.Zero(t, i.again(doubt-time.Second))
			require.Equal(t, 1, i.again(time.Second))
		}
		require.Contains(t, i.log.String(), "why=expired")
		i.keeper = newKeeper(i.config, i.issue, i.source, i.keeper.log) // as after a restart
		i.serve(&account)
		require.Equal(t, 1, i.again(0), "one in each process")
		require.Zero(t, i.again(time.Minute))
	})
}

// The clock was years ahead when they were written, and was set right since.
func TestCredentialsOfTheFutureAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		i.serve(&account)
		require.Equal(t, 1, i.again(0))
		written := func(in time.Duration) {
			at := time.Now().Add(in)
			require.NoError(t, os.Chtimes(i.path(), at, at))
		}
		written(2*doubt + ahead - time.Second) // a short while ahead, by then
		require.Zero(t, i.again(2*doubt))
		written(10 * lifetime)
		i.err = api.ErrForbidden
		for range 2 {
			require.Equal(t, 1, i.again(time.Minute), "one that failed is tried each minute")
			require.NotEmpty(t, i.credentials().Problem)
		}
		i.err = nil
		require.Equal(t, 1, i.again(0))
		require.Contains(t, i.log.String(), "written in the future")
		written(10 * lifetime) // by whatever keeps the time of that file
		require.Zero(t, i.again(doubt-time.Second))
		require.Equal(t, 1, i.again(time.Second))
	})
}

func TestCredentialsFollowWhatChanges(t *testing.T) {
	for why, change := range map[string]func(*issuer){
		"absent":                    func(i *issuer) { require.NoError(i.t, os.Remove(i.path())) },
		"it has no current context": func(i *issuer) { require.NoError(i.t, os.WriteFile(i.path(), nil, 0o600)) },
		"of another Node object":    func(i *issuer) { i.serve(&Account{account.NamespacedName, "anew"}) },
		"of another endpoint":       func(i *issuer) { i.config.APIEndpoint = "https://10.0.0.2:6443" },
		"of another certificate authority": func(i *issuer) {
			require.NoError(i.t, os.WriteFile(filepath.Join(i.source, "ca.crt"), []byte("anew"), 0o600))
		},
	} {
		i := newIssuer(t)
		i.serve(&account)
		require.Equal(t, 1, i.again(0))
		require.Zero(t, i.again(0))
		change(i)
		require.Equal(t, 1, i.again(0), why)
		require.Contains(t, i.log.String(), why)
	}
}

func TestCredentialsFollowTheServiceAccount(t *testing.T) {
	i := newIssuer(t)
	i.serve(&account)
	i.mounts()
	require.Equal(t, 1, i.again(0))
	for _, change := range []func(){
		func() {
			i.serve(&Account{types.NamespacedName{Namespace: "kube-system", Name: "another"}, account.NodeUID})
		},
		func() {
			i.serve(&Account{types.NamespacedName{Namespace: "elsewhere", Name: "another"}, account.NodeUID})
		},
		func() { i.serve(&account) },
		func() { i.uid = "made anew"; i.mounts() },
	} {
		require.Zero(t, i.again(0))
		change()
		require.Equal(t, 1, i.again(0))
	}
	require.Zero(t, i.again(0))
	require.Equal(t, 4, strings.Count(i.log.String(), "of another service account"))

	i.config.Kubeconfig = "/etc/kubernetes/pod-checkpointer.conf" // and not the pod's own token
	i.uid = "made anew again"
	i.mounts()
	require.Zero(t, i.again(0))
}

func TestCredentialsOfAKubeconfigAreNotComparedWithThePod(t *testing.T) {
	i := newIssuer(t)
	i.config.Kubeconfig, i.config.APIEndpoint = "/etc/kubernetes/pod-checkpointer.conf", "https://elsewhere:6443"
	i.serve(&account)
	require.Equal(t, 1, i.again(0))
	require.Zero(t, i.again(0))
}

func TestCredentialsAreWrittenForAPodFromTheAPIAlone(t *testing.T) {
	i := newIssuer(t)
	require.Zero(t, i.again(0))
	require.Nil(t, i.credentials(), "none there and none wanted")
	i.serve(&account)
	i.config.DryRun = true
	require.Zero(t, i.again(0))
	require.NoFileExists(t, i.path())
}

func TestCredentialsThatCantBeRenewedStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		i.serve(&account)
		i.again(0)
		old, err := os.ReadFile(i.path())
		require.NoError(t, err)
		expires := i.credentials().Expires

		i.err = fmt.Errorf("create serviceaccounts/token: %w: a Role must allow it", api.ErrForbidden)
		for range 3 {
			require.Equal(t, 1, i.again(24*time.Hour))
		}
		now, err := os.ReadFile(i.path())
		require.NoError(t, err)
		require.Equal(t, old, now)
		require.Equal(t, expires, i.credentials().Expires)
		require.Contains(t, i.credentials().Problem, "forbidden: a Role must allow it")
		require.Equal(t, 1, strings.Count(i.log.String(), "level=WARN"), "said once")

		i.err = nil
		require.Equal(t, 1, i.again(time.Minute))
		require.Empty(t, i.credentials().Problem)

		require.NoError(t, os.RemoveAll(i.config.StateDir))
		i.again(24 * time.Hour)
		require.Contains(t, i.credentials().Problem, "no such file or directory")
	})
}

// The static copy leads while no pod from the API is there: it says what will come.
func TestCredentialsThatEndAreToldByWhoUsesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		i.serve(&account)
		i.again(0)
		i.serve(nil)
		require.Zero(t, i.again(lifetime-nearEnd))
		require.Empty(t, i.credentials().Problem)
		require.Zero(t, i.again(time.Second))
		require.Contains(t, i.credentials().Problem, " expires at ")
		require.Zero(t, i.again(nearEnd))
		require.Contains(t, i.credentials().Problem, " expired at ")
	})
}

func TestKeeperLooksEachMinuteAndWhenTheAccountIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- i.run(ctx) }()
		asked := func() int {
			synctest.Wait()
			i.mu.Lock()
			defer i.mu.Unlock()
			return len(i.asked)
		}
		require.Zero(t, asked())
		i.serve(&account)
		i.serve(&account)
		require.Equal(t, 1, asked(), "at once")
		require.NoError(t, os.Remove(i.path()))
		time.Sleep(credentialsBeat)
		require.Equal(t, 2, asked())
		stop()
		require.NoError(t, <-done)
	})
}

func TestStatusTellsOfTheCredentials(t *testing.T) {
	n := newNode(t)
	n.runsAs(daemonPod("v1"))
	s := n.observe()
	require.Equal(t, &Account{types.NamespacedName{Namespace: "kube-system", Name: "pod-checkpointer"}, "node-uid"}, s.account())
	n.runsAs(nil)
	require.Nil(t, n.observe().account())

	told := &Credentials{Expires: time.Unix(1, 0), Problem: "too old"}
	l := New(n.config, Parts{Clock: n.clock, Sources: n.sources, Effects: still{t}, Store: n.store, Manifests: n.manifests,
		Credentials: func() *Credentials { return told }})
	n.pass(l)
	require.Equal(t, told, l.Status().Credentials)
	require.Contains(t, l.Status().Problems, "too old")
}
