package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
)

// Claims is whose a token is. What it does not say is "".
type Claims struct {
	Account    types.NamespacedName // the service account
	AccountUID string
	NodeUID    string // of the Node that it is bound to
	Audiences  []string
	Issued     time.Time // by the API server's clock, as Expires
	Expires    time.Time
}

// ParseKubeconfig is the reverse of [Kubeconfig]: the token in it. It checks no
// signature, and an error holds nothing of what was read.
func ParseKubeconfig(data []byte) (Token, error) {
	file, err := clientcmd.Load(data)
	if err != nil {
		return Token{}, errors.New("it is no kubeconfig") // a decoder quotes what it could not read
	}
	context := file.Contexts[file.CurrentContext]
	if context == nil {
		return Token{}, errors.New("it has no current context")
	}
	cluster, user := file.Clusters[context.Cluster], file.AuthInfos[context.AuthInfo]
	if cluster == nil || user == nil || user.Token == "" {
		return Token{}, errors.New("it has no token")
	}
	t := Token{Value: user.Token, CA: cluster.CertificateAuthorityData, Endpoint: cluster.Server}
	t.Issued, t.Expires = lifetime(t.Value)
	if t.Issued.IsZero() || t.Expires.IsZero() {
		return Token{}, errors.New("its token does not say how long it counts")
	}
	return t, nil
}

// ClaimsOf reads from the token of a service account whose it is (kubernetes v1.37,
// pkg/serviceaccount/claims.go, privateClaims); the zero value for any other text. It
// checks no signature.
func ClaimsOf(token string) Claims {
	type ref struct{ Name, UID string }
	var claims struct {
		Audiences  audiences `json:"aud"`
		Kubernetes struct {
			Namespace      string
			ServiceAccount ref
			Node           ref
		} `json:"kubernetes.io"`
	}
	_, payload, _ := strings.Cut(token, ".")
	payload, _, _ = strings.Cut(payload, ".")
	data, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || json.Unmarshal(data, &claims) != nil {
		return Claims{}
	}
	k := claims.Kubernetes
	c := Claims{
		Account:    types.NamespacedName{Namespace: k.Namespace, Name: k.ServiceAccount.Name},
		AccountUID: k.ServiceAccount.UID, NodeUID: k.Node.UID, Audiences: claims.Audiences,
	}
	c.Issued, c.Expires = lifetime(token)
	return c
}

// audiences are one or several (RFC 7519, section 4.1.3).
type audiences []string

func (a *audiences) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}
