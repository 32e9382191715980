package checkpoint

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
)

// A parent's own tokens end with its pod, and after an hour. A checkpoint has tokens
// of the same service accounts that are bound to the Node. They are kept nowhere but
// in the generation: the newest one's are used again until they are to be renewed, so
// that a parent with the same spec is the same generation.

// TokenWant says which token is to be asked for.
type TokenWant struct {
	Namespace string
	snapshot.TokenRef
	AccountUID types.UID // "": not known; another one is another account
	NodeUID    string
}

// request is for as long as the API server gives it.
func (w TokenWant) request(node string) api.TokenRequest {
	return api.TokenRequest{
		ServiceAccount: types.NamespacedName{Namespace: w.Namespace, Name: w.ServiceAccount},
		Audience:       w.Audience, Node: node, NodeUID: w.NodeUID, Lifetime: lifetime,
	}
}

// account is the service account as an object in a View.
func (w TokenWant) account() api.Ref {
	return api.Ref{Kind: api.ServiceAccount, Namespace: w.Namespace, Name: w.ServiceAccount}
}

func (w TokenWant) String() string {
	words := "token of service account " + w.Namespace + "/" + w.ServiceAccount
	if w.Audience != "" {
		words += " for " + w.Audience
	}
	return words
}

// tokensOf are the tokens that a pod mounts, of accounts that there are.
func tokensOf(pod *v1.Pod, view *api.View) []TokenWant {
	var wants []TokenWant
	for _, ref := range snapshot.TokenRefs(pod) {
		want := TokenWant{Namespace: pod.Namespace, TokenRef: ref, NodeUID: view.NodeUID}
		want.AccountUID = view.Accounts[want.account()]
		if !view.Missing[want.account()] {
			wants = append(wants, want)
		}
	}
	return wants
}

// keptToken is one in the files of a generation.
type keptToken struct {
	value string
	api.Claims
}

// fits tells whether it is the token that is wanted. Whom a token is for that is for
// the API server itself, the daemon's own token tells; where that does not, it is any
// one that no other mount of the pod asks for.
func (t keptToken) fits(want TokenWant, all []TokenWant, own []string) bool {
	switch {
	case t.Account != want.request("").ServiceAccount, t.NodeUID != want.NodeUID:
		return false
	case want.AccountUID != "" && t.AccountUID != string(want.AccountUID):
		return false
	case want.Audience != "":
		return slices.Equal(t.Audiences, []string{want.Audience})
	case own != nil:
		return slices.ContainsFunc(t.Audiences, func(a string) bool { return slices.Contains(own, a) })
	}
	return !slices.ContainsFunc(all, func(other TokenWant) bool {
		return other.Audience != "" && slices.Equal(t.Audiences, []string{other.Audience})
	})
}

// due tells whether it is to be renewed: as the kubelet does it, at four fifths of its
// life or daily (kubernetes v1.37, pkg/kubelet/token/token_manager.go, requiresRefresh).
// One from the future says nothing of its age.
func (t keptToken) due(now time.Time) bool {
	age := now.Sub(t.Issued)
	return age < -ahead || age >= freshFor(t.Issued, t.Expires)
}

// freshFor is how long after it was issued a token is renewed.
func freshFor(issued, expires time.Time) time.Duration {
	return min(renewal, expires.Sub(issued)*8/10)
}

// token is the one for a parent: that of the newest generation, unless it is to be
// renewed, else the one that was asked for. A finding tells of one that could not be
// renewed, lacks of one that there is not.
func (o *observer) token(kept []keptToken, want TokenWant, all []TokenWant, view *api.View) (value string, asks bool, finding, lacks string) {
	var old keptToken
	for _, t := range kept {
		if t.fits(want, all, view.Audiences) && t.Issued.After(old.Issued) {
			old = t
		}
	}
	now := time.Now()
	if old.value != "" && !old.due(now) {
		return old.value, false, "", ""
	}
	asked := o.sources.Token(want)
	switch valid := old.value != "" && now.Before(old.Expires); {
	case asked.Err == nil && asked.At != 0:
		return asked.Value.Value, true, "", ""
	case o.config.DryRun && !valid:
		return "", false, "", want.String() + ": a dry run asks for none"
	case asked.Err != nil && valid:
		return old.value, true, fmt.Sprintf("TokenNotRenewed: the %s counts until %s: %v", want, utc(old.Expires), asked.Err), ""
	case asked.Err != nil:
		return "", true, "", fmt.Sprintf("%s: %v", want, asked.Err)
	case valid:
		return old.value, true, "", ""
	}
	return "", true, "", want.String() + ": it is being asked for"
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }
