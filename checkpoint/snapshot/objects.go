package snapshot

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Objects are what a pod names and a checkpoint can't ask for, by their name in
// the pod's namespace. A key that is absent means that there is no such object;
// a caller that could not find out must not ask for a snapshot.
type Objects struct {
	Secrets    map[string]*v1.Secret
	ConfigMaps map[string]*v1.ConfigMap
	Tokens     map[TokenRef]string // as the API server gave them
	Images     map[string]Image    // by the reference in the pod
}

// Kind is that of an object that holds data.
type Kind string

// Kinds of objects that pods take files and environment from.
const (
	Secret    Kind = "Secret"
	ConfigMap Kind = "ConfigMap"
)

// Reference names an object that a pod needs.
type Reference struct {
	Kind            Kind
	Namespace, Name string
	Optional        bool // all that name it can do without
}

// TokenRef says what a token of a service account, in the pod's namespace, is for.
type TokenRef struct {
	ServiceAccount string
	Audience       string // "": the API server's own
}

// Image is what an image says of itself, as far as a command depends on it.
type Image struct {
	Entrypoint, Command []string
}

// References lists the Secrets and ConfigMaps that pod takes files and
// environment from, each once, sorted.
func References(pod *v1.Pod) []Reference {
	var refs []Reference
	add := func(kind Kind, name string, optional *bool) {
		ref := Reference{kind, pod.Namespace, name, isTrue(optional)}
		i := slices.IndexFunc(refs, func(r Reference) bool { return r.Kind == kind && r.Name == name })
		switch {
		case name == "":
		case i < 0:
			refs = append(refs, ref)
		default:
			refs[i].Optional = refs[i].Optional && ref.Optional
		}
	}
	for _, v := range pod.Spec.Volumes {
		referVolume(v, add)
	}
	for _, c := range allContainers(&pod.Spec) {
		referEnv(c.Container, add)
	}
	slices.SortFunc(refs, func(a, b Reference) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return refs
}

func referVolume(v v1.Volume, add func(kind Kind, name string, optional *bool)) {
	switch {
	case v.Secret != nil:
		add(Secret, v.Secret.SecretName, v.Secret.Optional)
	case v.ConfigMap != nil:
		add(ConfigMap, v.ConfigMap.Name, v.ConfigMap.Optional)
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			switch {
			case source.Secret != nil:
				add(Secret, source.Secret.Name, source.Secret.Optional)
			case source.ConfigMap != nil:
				add(ConfigMap, source.ConfigMap.Name, source.ConfigMap.Optional)
			}
		}
	}
}

func referEnv(c *v1.Container, add func(kind Kind, name string, optional *bool)) {
	for _, from := range c.EnvFrom {
		switch {
		case from.SecretRef != nil:
			add(Secret, from.SecretRef.Name, from.SecretRef.Optional)
		case from.ConfigMapRef != nil:
			add(ConfigMap, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		}
	}
	for _, e := range c.Env {
		switch {
		case e.ValueFrom == nil:
		case e.ValueFrom.SecretKeyRef != nil:
			add(Secret, e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Optional)
		case e.ValueFrom.ConfigMapKeyRef != nil:
			add(ConfigMap, e.ValueFrom.ConfigMapKeyRef.Name, e.ValueFrom.ConfigMapKeyRef.Optional)
		}
	}
}

// TokenRefs lists the tokens that pod mounts, each once, sorted.
func TokenRefs(pod *v1.Pod) []TokenRef {
	var refs []TokenRef
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if t := source.ServiceAccountToken; t != nil {
				refs = append(refs, tokenRef(pod, t))
			}
		}
	}
	slices.SortFunc(refs, func(a, b TokenRef) int {
		return cmp.Or(cmp.Compare(a.ServiceAccount, b.ServiceAccount), cmp.Compare(a.Audience, b.Audience))
	})
	return slices.Compact(refs)
}

// ImageRefs lists the images whose entrypoint a snapshot of pod has to know, each
// once: those of containers without a command of their own whose program lock-exec
// has to start.
func ImageRefs(pod *v1.Pod) []string {
	var refs []string
	for _, c := range allContainers(&pod.Spec) {
		if hidesEnv(c.Container) && len(c.Command) == 0 && !slices.Contains(refs, c.Image) {
			refs = append(refs, c.Image)
		}
	}
	return refs
}

// hidesEnv tells whether the manifest can't hold some of the container's environment,
// as far as the pod alone tells.
func hidesEnv(c *v1.Container) bool {
	return slices.ContainsFunc(c.EnvFrom, func(from v1.EnvFromSource) bool { return from.SecretRef != nil }) ||
		slices.ContainsFunc(c.Env, func(e v1.EnvVar) bool {
			return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil || oddName(e.Name)
		})
}
