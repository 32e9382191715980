package apitest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Audience is the server's own.
const Audience = "https://kubernetes.default.svc"

// LimitTokens gives no token for longer than limit, and says so only by its
// expiry, as kube-apiserver's --service-account-max-token-expiration does. 0: no limit.
func (s *Server) LimitTokens(limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokenLimit = limit
}

// token issues a token that is bound to a Node. It is accepted once AcceptToken names it.
func (s *Server) token(w http.ResponseWriter, r *http.Request, account location) {
	type object = map[string]any
	var asked struct {
		Kind string
		Spec struct {
			Audiences         []string
			ExpirationSeconds int64
			BoundObjectRef    struct{ Kind, Name, UID string }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Kind != "TokenRequest" || asked.Spec.BoundObjectRef.Kind != "Node" {
		send(w, r, http.StatusBadRequest, status(apierrors.NewBadRequest("apitest issues no such token")))
		return
	}
	ref := asked.Spec.BoundObjectRef
	s.mu.Lock()
	owner := s.state.objects["/api/v1/namespaces/"+account.namespace+"/serviceaccounts/"+account.name]
	node, _ := s.state.objects["/api/v1/nodes/"+ref.Name].(*corev1.Node)
	seconds := asked.Spec.ExpirationSeconds
	if s.tokenLimit > 0 {
		seconds = min(seconds, int64(s.tokenLimit/time.Second))
	}
	s.mu.Unlock()
	nodes := location{kind: "nodes"}.group()
	switch {
	case owner == nil:
		send(w, r, http.StatusNotFound, status(apierrors.NewNotFound(account.group(), account.name)))
		return
	case node == nil:
		send(w, r, http.StatusNotFound, status(apierrors.NewNotFound(nodes, ref.Name)))
		return
	case string(node.UID) != ref.UID:
		why := fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record", ref.UID)
		send(w, r, http.StatusConflict, status(apierrors.NewConflict(nodes, ref.Name, why)))
		return
	}
	now := time.Now().Truncate(time.Second)
	audiences := asked.Spec.Audiences
	if len(audiences) == 0 {
		audiences = []string{Audience}
	}
	claims, _ := json.Marshal(object{
		"iat": now.Unix(), "exp": now.Unix() + seconds, "aud": audiences,
		"kubernetes.io": object{"namespace": account.namespace, "serviceaccount": object{"name": account.name, "uid": owner.GetUID()}, "node": object{"name": ref.Name, "uid": ref.UID}},
	})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(object{
		"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
		"status": object{
			"token":               "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".c2lnbmF0dXJl",
			"expirationTimestamp": now.Add(time.Duration(seconds) * time.Second).UTC().Format(time.RFC3339),
		},
	})
}
