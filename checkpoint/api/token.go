package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// TokenRequest asks for a token that counts as long as the Node object does.
// (One that is bound to a pod ends with the pod, which a node has to outlive.)
type TokenRequest struct {
	ServiceAccount types.NamespacedName
	Audience       string        // "": the API server itself
	Node, NodeUID  string        // as a View has them
	Lifetime       time.Duration // 10 minutes or more; the API server may give less
}

// Token is a credential, and how to use it. Its Value is a secret.
type Token struct {
	Value           string
	Issued, Expires time.Time // by the API server's clock
	CA              []byte    // PEM, that the API server was verified with; empty: the system's
	Endpoint        string    // URL that it was reached at
}

// Token asks once, within the deadline of ctx. Its errors match those of this
// package, or context.Canceled; none holds a token.
func (c *Client) Token(ctx context.Context, r TokenRequest) (Token, error) {
	ctx = klog.NewContext(ctx, klog.New(nil)) // as in View
	ctx, closeConnection := context.WithCancel(ctx)
	defer closeConnection()
	s, err := c.connect(ctx, newTransport)
	if err != nil {
		return Token{}, err
	}
	t := Token{Issued: time.Now(), CA: s.config.CAData, Endpoint: s.config.Host}
	what := call{"create", "serviceaccounts/token", r.ServiceAccount.Namespace, r.ServiceAccount.Name}
	var answer struct {
		Kind   string
		Status struct {
			Token               string
			ExpirationTimestamp time.Time
		}
	}
	request := s.Post().Namespace(r.ServiceAccount.Namespace).Resource("serviceaccounts").Name(r.ServiceAccount.Name).
		SubResource("token").SetHeader("Content-Type", runtime.ContentTypeJSON).Body(r.body())
	if err := askJSON(ctx, s, request, what, &answer); err != nil {
		return Token{}, err
	}
	t.Value, t.Expires = answer.Status.Token, answer.Status.ExpirationTimestamp
	// What the token says of itself is what it is judged by.
	issued, expires := lifetime(t.Value)
	if !issued.IsZero() {
		t.Issued = issued
	}
	if !expires.IsZero() {
		t.Expires = expires
	}
	if answer.Kind != "TokenRequest" || t.Value == "" || t.Expires.IsZero() {
		return Token{}, fmt.Errorf("%s: %w: it has no token that ends", what, ErrAnswer)
	}
	return t, nil
}

// body is authentication.k8s.io/v1 TokenRequest as far as it is used here.
func (r TokenRequest) body() []byte {
	type object = map[string]any
	spec := object{
		"expirationSeconds": int64(r.Lifetime / time.Second),
		"boundObjectRef":    object{"apiVersion": "v1", "kind": "Node", "name": r.Node, "uid": r.NodeUID},
	}
	if r.Audience != "" {
		spec["audiences"] = []string{r.Audience}
	}
	data, err := json.Marshal(object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
	if err != nil {
		panic(err) // strings and a number
	}
	return data
}

// Kubeconfig returns the contents of a file that Config can name and that needs
// no other file. It holds the token.
func Kubeconfig(t Token) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster:
    server: %q
    certificate-authority-data: %q
users:
- name: pod-checkpointer
  user:
    token: %q
contexts:
- name: context
  context: {cluster: cluster, user: pod-checkpointer}
current-context: context
`, t.Endpoint, base64.StdEncoding.EncodeToString(t.CA), t.Value)
}
