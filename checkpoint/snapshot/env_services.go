package snapshot

import (
	"regexp"
	"strings"

	"github.com/pod-checkpointer/pod-checkpointer/lock/expand"
)

// serviceVariable is how a kubelet names what it says of Services
// (k8s.io/kubernetes v1.37.2, pkg/kubelet/envvars/envvars.go). Those of the Service
// kubernetes it says to every container, of others unless enableServiceLinks is false.
var serviceVariable = regexp.MustCompile(`^[A-Z0-9_]+_(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// ofKubernetes tells of a variable that nobody declares whether the kubelet of a
// checkpoint may know it all the same.
func ofKubernetes(name string) bool {
	return strings.HasPrefix(name, "KUBERNETES_") && serviceVariable.MatchString(name)
}

// findServices looks for what a text takes from Services. A kubelet that has not reached
// the API server knows of none and leaves the text as it is, so that it has to be told,
// or the text is refused.
func (e *environment) findServices(text, at string) error {
	for _, p := range expand.Parts(text) {
		_, declared := e.variables[p.Text]
		switch {
		case !p.Name || declared || !serviceVariable.MatchString(p.Text):
		case p.Text == envHost || p.Text == envPort:
			e.asksEndpoint = true
		case e.links || ofKubernetes(p.Text):
			return refused(Unsupported, at, "$(%s) comes from a Service, which a checkpoint's kubelet may not know; write the value, or a variable of that name", p.Text)
		}
	}
	return nil
}
