package api

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is that of an object that a View holds.
type Kind string

// The kinds that a View holds.
const (
	Secret         Kind = "Secret"
	ConfigMap      Kind = "ConfigMap"
	ServiceAccount Kind = "ServiceAccount"
)

// Ref names an object that a pod needs.
type Ref struct {
	Kind            Kind
	Namespace, Name string
}

// String is kind namespace/name.
func (r Ref) String() string { return string(r.Kind) + " " + r.Namespace + "/" + r.Name }

// resource is the kind as a request path has it; "" for one that no View holds.
func (k Kind) resource() string {
	switch k {
	case Secret:
		return "secrets"
	case ConfigMap:
		return "configmaps"
	case ServiceAccount:
		return "serviceaccounts"
	}
	return ""
}

// named asks for what the protected pods name, each once, even after one has
// failed: a Role may allow some of them.
func (c *Client) named(ctx context.Context, s *server, v *View, wanted Wanted, still *Still) {
	v.Secrets = make(map[Ref]*corev1.Secret)
	v.ConfigMaps = make(map[Ref]*corev1.ConfigMap)
	v.Accounts = make(map[Ref]types.UID)
	v.Missing = make(map[Ref]bool)
	v.Failed = make(map[Ref]error)
	v.Owners = make(map[Owner]OwnerSpec)
	for i := range v.Pods {
		refs, protected := wanted(&v.Pods[i])
		if !protected {
			continue
		}
		for _, ref := range refs {
			if !v.has(ref) && !still.give(v, ref) {
				v.ask(ctx, s, ref)
			}
		}
		owner, ok := OwnerOf(&v.Pods[i])
		if _, asked := v.Owners[owner]; ok && !asked {
			v.Owners[owner] = s.owner(ctx, owner)
		}
	}
}

// has tells whether the object was asked for.
func (v *View) has(r Ref) bool {
	return v.Secrets[r] != nil || v.ConfigMaps[r] != nil || v.Accounts[r] != "" || v.Missing[r] || v.Failed[r] != nil
}

// lacks tells whether an object failed that there would be a watch of.
func (v *View) lacks() bool {
	for ref := range v.Failed {
		if ref.Kind != ServiceAccount { // which a Role need not allow
			return true
		}
	}
	return false
}

// ask asks for one object and puts the answer where it belongs.
func (v *View) ask(ctx context.Context, s *server, r Ref) {
	var err error
	switch r.Kind {
	case Secret:
		var secret *corev1.Secret
		if secret, err = get[*corev1.Secret](ctx, s, r.Kind.resource(), r.Namespace, r.Name); err == nil {
			v.Secrets[r] = secret
		}
	case ConfigMap:
		var configMap *corev1.ConfigMap
		if configMap, err = get[*corev1.ConfigMap](ctx, s, r.Kind.resource(), r.Namespace, r.Name); err == nil {
			v.ConfigMaps[r] = configMap
		}
	case ServiceAccount:
		var account *corev1.ServiceAccount
		if account, err = get[*corev1.ServiceAccount](ctx, s, r.Kind.resource(), r.Namespace, r.Name); err == nil {
			v.Accounts[r] = account.UID
		}
	default:
		err = fmt.Errorf("%s: no View holds this kind", r)
	}
	switch {
	case errors.Is(err, errNotFound):
		v.Missing[r] = true
	case err != nil:
		v.Failed[r] = err
	}
}
