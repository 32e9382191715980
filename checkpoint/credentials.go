package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
)

const (
	// credentialsFile is the file below the state directory with which the static copy, which
	// has no service account, asks the API server.
	credentialsFile = "kubeconfig"
	// lifetime is asked for; what the API server gives may be less.
	lifetime = 365 * 24 * time.Hour
	// renewal is how old a token becomes at most, as long as there is an API server.
	renewal = 24 * time.Hour
	// nearEnd is how long before their end credentials are worth a warning: renewed
	// daily, they would not come that far.
	nearEnd = 7 * 24 * time.Hour
	// credentialsBeat is how often the file is looked at.
	credentialsBeat = time.Minute
	// doubt is how often they are renewed at most for what the clocks alone say, which
	// a renewal need not mend: this node's may be wrong, or the API server's.
	doubt = time.Hour
	// ahead is how far in the future a file may have been written.
	ahead = time.Minute
)

// Account is the service account of the daemon's own pod, and the Node on which its
// token is to count.
type Account struct {
	types.NamespacedName
	NodeUID string
}

// Credentials is where those of the static copy stand.
type Credentials struct {
	Expires time.Time `json:"expires,omitzero"`
	Problem string    `json:"problem,omitempty"` // what is wrong, and what to do
}

// keeper keeps the credentials of the static copy fresh while this copy leads. What it
// does follows from the file, so that a restart asks for nothing anew as long as the
// clocks are right. It asks the network, and so is no part of a pass.
type keeper struct {
	config Config
	token  func(context.Context, api.TokenRequest) (api.Token, error)
	source string // directory of this pod's service account
	log    *slog.Logger

	renewed time.Time // when they were written last; the zero time: not by this process

	account atomic.Pointer[Account] // nil: not a pod from the API, or not known: nothing is written
	told    atomic.Pointer[Credentials]
	changed chan struct{} // the account did
}

func newKeeper(c Config, token func(context.Context, api.TokenRequest) (api.Token, error), source string, log *slog.Logger) *keeper {
	return &keeper{config: c, token: token, source: source, log: log, changed: make(chan struct{}, 1)}
}

// serve tells whose credentials are to be kept; nil: nobody's. It does not block.
func (k *keeper) serve(a *Account) {
	if old := k.account.Swap(a); a != nil && (old == nil || *old != *a) {
		select {
		case k.changed <- struct{}{}:
		default:
		}
	}
}

// credentials is what is known of them; nil: there are none, and none are wanted.
func (k *keeper) credentials() *Credentials { return k.told.Load() }

// run looks at the file once a minute, and at once when the account changes, until
// ctx ends.
func (k *keeper) run(ctx context.Context) error {
	beat := time.NewTicker(credentialsBeat)
	defer beat.Stop()
	for {
		k.check(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
		case <-k.changed:
		}
	}
}

// check renews the credentials if that is due. An old file stays until it has been
// replaced as a whole, whatever fails.
func (k *keeper) check(ctx context.Context) {
	account := k.account.Load()
	old, err := k.read()
	var now *Credentials
	if err == nil {
		now = &Credentials{Expires: old.Expires}
	}
	if why := k.due(account, old, err); why != "" {
		renewed, err := k.renew(ctx, *account)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			now = &Credentials{Expires: old.Expires, Problem: k.explain(err)}
		default:
			now, k.renewed = &Credentials{Expires: renewed.Expires}, time.Now()
			k.log.Info("credentials of the static copy written", "path", k.path(), "why", why)
		}
	}
	if now != nil && now.Problem == "" {
		now.Problem = k.expiring(now.Expires)
	}
	k.tell(now)
}

// due says why the file is to be written, "" if it is not.
func (k *keeper) due(account *Account, old onDisk, err error) string {
	if account == nil || k.config.DryRun {
		return ""
	}
	if err == nil && k.another(account, old.claims) {
		return "of another service account"
	}
	endpoint, ca := k.here()
	switch age := time.Since(old.written); {
	case errors.Is(err, fs.ErrNotExist):
		return "absent"
	case err != nil:
		return err.Error()
	case age >= renewal, age >= old.Expires.Sub(old.Issued)*8/10:
		return "written " + age.Round(time.Minute).String() + " ago"
	case old.claims.NodeUID != "" && old.claims.NodeUID != account.NodeUID:
		return "of another Node object"
	case endpoint != "" && endpoint != old.Endpoint:
		return "of another endpoint"
	case len(ca) > 0 && !bytes.Equal(ca, old.CA):
		return "of another certificate authority"
	case !k.renewed.IsZero() && time.Since(k.renewed) < doubt:
		return ""
	case age < -ahead:
		return "written in the future"
	case time.Until(old.Expires) <= 0:
		return "expired"
	}
	return ""
}

// another tells whether a token is of another service account than this pod's, or of
// an earlier one of that name, which the API server does not accept any more.
func (k *keeper) another(account *Account, of api.Claims) bool {
	if of.Account.Name == "" {
		return false // it does not say
	}
	if of.Account != account.NamespacedName {
		return true
	}
	if k.config.Kubeconfig != "" {
		return false // this pod may have no token that is of use
	}
	token, _ := os.ReadFile(filepath.Join(k.source, "token")) // what can't be read does not differ
	own := api.ClaimsOf(string(token))
	return own.Account == of.Account && own.AccountUID != "" && of.AccountUID != "" && own.AccountUID != of.AccountUID
}

// here is how this pod reaches the API server: nothing where --kubeconfig says it,
// which is found out at each renewal.
func (k *keeper) here() (endpoint string, ca []byte) {
	if k.config.Kubeconfig != "" {
		return "", nil
	}
	ca, _ = os.ReadFile(filepath.Join(k.source, "ca.crt")) // what can't be read does not differ
	return cmp.Or(k.config.APIEndpoint, k.config.Service), ca
}

func (k *keeper) path() string { return filepath.Join(k.config.StateDir, credentialsFile) }

// onDisk is what the file holds.
type onDisk struct {
	api.Token
	claims  api.Claims
	written time.Time // by this node's clock, which need not agree with the API server's
}

func (k *keeper) read() (onDisk, error) {
	info, err := os.Stat(k.path())
	if err != nil {
		return onDisk{}, err
	}
	data, err := os.ReadFile(k.path())
	if err != nil {
		return onDisk{}, err
	}
	token, err := api.ParseKubeconfig(data)
	return onDisk{token, api.ClaimsOf(token.Value), info.ModTime()}, err
}

func (k *keeper) renew(ctx context.Context, account Account) (api.Token, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	token, err := k.token(ctx, api.TokenRequest{
		ServiceAccount: account.NamespacedName, Node: k.config.Node, NodeUID: account.NodeUID, Lifetime: lifetime,
	})
	if err != nil {
		return token, err
	}
	dir, err := durable.Open(k.config.StateDir)
	if err != nil {
		return token, err
	}
	return token, dir.WriteFile(credentialsFile, api.Kubeconfig(token), 0o600)
}

// explain says what a person can do about a renewal that failed.
func (k *keeper) explain(err error) string {
	return fmt.Sprintf("credentials of the static copy: %s: %v: it is tried each minute, and the old file stays", k.path(), err)
}

func (k *keeper) expiring(at time.Time) string {
	switch left := time.Until(at); {
	case left <= 0:
		return fmt.Sprintf("credentials of the static copy: %s expired at %s: checkpoints start all the same, and the next pod of the DaemonSet renews it", k.path(), at.UTC().Format(time.RFC3339))
	case left < nearEnd:
		return fmt.Sprintf("credentials of the static copy: %s expires at %s: let a pod of the DaemonSet run here, or where the API server gives no longer ones, raise its --service-account-max-token-expiration", k.path(), at.UTC().Format(time.RFC3339))
	}
	return ""
}

// tell publishes, and logs a problem that is new.
func (k *keeper) tell(now *Credentials) {
	before := k.told.Swap(now)
	if now != nil && now.Problem != "" && (before == nil || before.Problem != now.Problem) {
		k.log.Warn("credentials of the static copy", "why", now.Problem)
	}
}

// account is the service account of the pod that this daemon runs in; nil if it runs
// in none from the API, or that is not known.
func (s *sight) account() *Account {
	own, _ := s.own() // keepCopy tells
	parents, known := s.api.Value()
	if own == nil || !known {
		return nil
	}
	name := cmp.Or(own.Spec.ServiceAccountName, "default") // as admission does
	return &Account{types.NamespacedName{Namespace: own.Namespace, Name: name}, parents.view.NodeUID}
}

func (l *Loop) tellCredentials(status *Status) {
	if status.Credentials = l.kept(); status.Credentials != nil && status.Credentials.Problem != "" {
		status.Problems = append(status.Problems, status.Credentials.Problem)
	}
}
