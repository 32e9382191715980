package checkpoint

import (
	"bytes"
	"fmt"
	"net"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
)

// Trust asks whether a client in a checkpoint can use the API server's address.
type Trust struct {
	Endpoint string // URL
	CA       string // PEM, that the client has beside its token
}

// trustsOf are those of a snapshot's clients: what they are told in their environment,
// and the authorities that stand beside one of these tokens.
func trustsOf(taken *snapshot.Snapshot, tokens map[snapshot.TokenRef]string) []Trust {
	var authorities []string
	for _, volume := range taken.Volumes {
		ca, token := "", false
		for _, f := range volume.Files {
			for _, value := range tokens {
				token = token || value != "" && bytes.Equal(f.Data, []byte(value))
			}
			if f.Path == "ca.crt" {
				ca = string(f.Data)
			}
		}
		if token && ca != "" {
			authorities = union(authorities, []string{ca})
		}
	}
	var trusts []Trust
	for _, c := range slices.Concat(taken.Pod.Spec.InitContainers, taken.Pod.Spec.Containers) {
		host, port := valueOf(c.Env, "KUBERNETES_SERVICE_HOST"), valueOf(c.Env, "KUBERNETES_SERVICE_PORT")
		if host == "" || port == "" {
			continue
		}
		for _, ca := range authorities {
			trusts = union(trusts, []Trust{{"https://" + net.JoinHostPort(host, port), ca}})
		}
	}
	return trusts
}

// valueOf is that of the last variable of this name, which is the one that counts.
func valueOf(env []v1.EnvVar, name string) string {
	value := ""
	for _, e := range env {
		if e.Name == name {
			value = e.Value
		}
	}
	return value
}

// distrusted tells of addresses that a parent's checkpoint could not use. What is not
// known is none of them.
func (o *observer) distrusted(trusts []Trust) []string {
	var findings []string
	for _, trust := range trusts {
		if why := o.sources.Certificate(trust).Value; why != "" {
			findings = append(findings, fmt.Sprintf("EndpointCertificate: a checkpoint's clients of the API server would not accept %s: %s; give its certificate this address as a subject alternative name, or name one that it has with --api-endpoint",
				trust.Endpoint, why))
		}
	}
	return findings
}
