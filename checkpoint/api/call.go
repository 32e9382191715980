package api

import "fmt"

// call is one request in the words of RBAC.
type call struct{ verb, resource, namespace, name string }

func (c call) String() string {
	words := c.verb + " " + c.resource
	if c.name != "" {
		words += " " + c.name
	}
	if c.namespace != "" {
		words += " in namespace " + c.namespace
	}
	return words
}

// rule is what allows the call.
func (c call) rule() string {
	role := "a ClusterRole"
	if c.namespace != "" {
		role = "a Role in namespace " + c.namespace
	}
	rule := fmt.Sprintf("%s must allow verb %s on resource %s", role, c.verb, c.resource)
	if c.name != "" {
		rule += ", resourceName " + c.name
	}
	return rule
}
