package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
)

// ParseKubeconfig is the reverse of [Kubeconfig]: the token in it, and the UID of the
// Node that it is bound to, "" where it does not say. It checks no signature, and an
// error holds nothing of what was read.
func ParseKubeconfig(data []byte) (t Token, nodeUID string, err error) {
	file, err := clientcmd.Load(data)
	if err != nil {
		return Token{}, "", errors.New("it is no kubeconfig") // a decoder quotes what it could not read
	}
	context := file.Contexts[file.CurrentContext]
	if context == nil {
		return Token{}, "", errors.New("it has no current context")
	}
	cluster, user := file.Clusters[context.Cluster], file.AuthInfos[context.AuthInfo]
	if cluster == nil || user == nil || user.Token == "" {
		return Token{}, "", errors.New("it has no token")
	}
	t = Token{Value: user.Token, CA: cluster.CertificateAuthorityData, Endpoint: cluster.Server}
	t.Issued, t.Expires = lifetime(t.Value)
	if t.Issued.IsZero() || t.Expires.IsZero() {
		return Token{}, "", errors.New("its token does not say how long it counts")
	}
	return t, boundTo(t.Value), nil
}

// boundTo is the UID of the Node in a token (kubernetes v1.37,
// pkg/serviceaccount/claims.go, privateClaims).
func boundTo(token string) string {
	var claims struct {
		Kubernetes struct {
			Node struct {
				UID string `json:"uid"`
			} `json:"node"`
		} `json:"kubernetes.io"`
	}
	_, payload, _ := strings.Cut(token, ".")
	payload, _, _ = strings.Cut(payload, ".")
	data, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || json.Unmarshal(data, &claims) != nil {
		return ""
	}
	return claims.Kubernetes.Node.UID
}
