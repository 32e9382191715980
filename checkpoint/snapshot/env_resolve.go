package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pod-checkpointer/pod-checkpointer/lock/expand"
)

// environment is that of a container, as its parent's kubelet made it
// (pkg/kubelet/kubelet_pods.go, makeEnvironmentVariables, v1.37.2 and v1.34.4):
// first envFrom, then env, each in its order, and a later variable of one name
// replaces an earlier one. A text sees the variables before it. What comes of a
// reference is no text.
type environment struct {
	at        string // path of the container in the pod
	variables map[string]variable
	derived   []derived // in the order of their entries
	entries   int

	links        bool // the parent's kubelet told of Services
	asksEndpoint bool // a text names the address of the API server
}

// variable is what the entries so far make of one name.
type variable struct {
	value  string
	known  bool   // else only the checkpoint's own kubelet can tell it
	hidden bool   // no manifest may, or can, hold it: lock-exec sets it
	long   bool   // above maxText, and cut
	entry  int    // which one made it, from 1
	at     string // path of that one in the pod
}

// derived is a hidden variable of which only the kubelet knows a part, so that
// lock-exec makes it.
type derived struct {
	name string
	text string         // as lock-exec reads it
	uses map[string]int // entries of the variables in it
	variable
}

// resolveEnv takes out of the containers' environment all that comes from objects of
// the API server. Values of ConfigMaps take the place of what named them; those of
// Secrets, and what is made of them, are only in what it returns, by container.
func resolveEnv(spec *v1.PodSpec, from source) ([]environment, error) {
	var all []environment
	links := from.pod.Spec.EnableServiceLinks
	for _, c := range allContainers(spec) {
		e := environment{at: c.at, variables: map[string]variable{}, links: links == nil || *links}
		if err := e.resolve(spec, c.Container, from.objects); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

func (e *environment) resolve(spec *v1.PodSpec, c *v1.Container, o Objects) error {
	for i, from := range c.EnvFrom {
		if err := e.addAll(from, o, fmt.Sprintf("%s.envFrom[%d]", e.at, i)); err != nil {
			return err
		}
	}
	var kept []v1.EnvVar
	for _, name := range slices.Sorted(maps.Keys(e.variables)) {
		if v := e.variables[name]; !v.hidden {
			kept = append(kept, literal(name, v.value))
		}
	}
	for i, entry := range c.Env {
		keep, err := e.add(&entry, spec, o, fmt.Sprintf("%s.env[%d]", e.at, i))
		if err != nil {
			return err
		}
		if keep {
			kept = append(kept, entry)
		}
	}
	c.EnvFrom, c.Env = nil, kept
	for i, word := range slices.Concat(c.Command, c.Args) {
		if err := e.findServices(word, e.wordAt(c, i)); err != nil {
			return err
		}
		if e.expand(word).long {
			return tooLong(e.wordAt(c, i))
		}
	}
	for i, m := range c.VolumeMounts {
		if err := e.findServices(m.SubPathExpr, fmt.Sprintf("%s.volumeMounts[%d].subPathExpr", e.at, i)); err != nil {
			return err
		}
	}
	return e.verify()
}

func (e *environment) addAll(from v1.EnvFromSource, o Objects, at string) error {
	var data map[string]string
	var err error
	switch {
	case (from.ConfigMapRef == nil) == (from.SecretRef == nil):
		return refused(Unsupported, at, "it names no source, or two; name one")
	case from.ConfigMapRef != nil:
		data, err = envData(o, ConfigMap, from.ConfigMapRef.Name, from.ConfigMapRef.Optional, at+".configMapRef.name")
	default:
		data, err = envData(o, Secret, from.SecretRef.Name, from.SecretRef.Optional, at+".secretRef.name")
	}
	for key, value := range data {
		e.define(from.Prefix+key, variable{value: value, known: true, hidden: from.SecretRef != nil, at: at})
	}
	return err
}

// add defines the variable of an entry, and says whether the entry is to be kept. In
// place of a reference it writes the value.
func (e *environment) add(entry *v1.EnvVar, spec *v1.PodSpec, o Objects, at string) (keep bool, err error) {
	from := entry.ValueFrom
	switch {
	case from == nil:
		if err := e.findServices(entry.Value, at+".value"); err != nil {
			return false, err
		}
		v := e.expand(entry.Value)
		v.at = at
		if v = e.define(entry.Name, v); v.hidden && !v.known {
			e.derive(entry.Name, entry.Value, v)
		}
		return !v.hidden, nil
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		value, found, err := envValue(o, ConfigMap, r.LocalObjectReference, r.Key, r.Optional, at+".valueFrom.configMapKeyRef")
		if err != nil || !found {
			return false, err
		}
		v := e.define(entry.Name, variable{value: value, known: true, at: at})
		*entry = literal(entry.Name, value)
		return !v.hidden, nil
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		value, found, err := envValue(o, Secret, r.LocalObjectReference, r.Key, r.Optional, at+".valueFrom.secretKeyRef")
		if err == nil && found {
			e.define(entry.Name, variable{value: value, known: true, hidden: true, at: at})
		}
		return false, err
	case from.FileKeyRef != nil:
		if err := checkFile(from.FileKeyRef, spec, at+".valueFrom.fileKeyRef.volumeName"); err != nil {
			return false, err
		}
	}
	if v := e.define(entry.Name, variable{at: at}); v.hidden {
		return false, refused(Unsupported, at+".name", "a kubelet of 1.34 takes %q from the API server and not from a manifest; use letters, digits, '_', '.' and '-' and begin with no digit", entry.Name)
	}
	return true, nil
}

// define says what a name is from now on. What not every kubelet takes from a
// manifest, or JSON can't hold, is hidden: up to 1.34 names in a static pod are held
// to an older rule (v1.34.4, pkg/kubelet/config/common.go, tryDecodeSinglePod).
func (e *environment) define(name string, v variable) variable {
	e.entries++
	v.entry = e.entries
	v.long = v.long || len(name)+len("=")+len(v.value) >= maxText
	v.hidden = v.hidden || oddName(name) || !utf8.ValidString(v.value)
	e.variables[name] = v
	return v
}

func oddName(name string) bool { return len(validation.IsEnvVarName(name)) > 0 }

// maxText is what Linux takes of one variable or argument, with its end
// (include/uapi/linux/binfmts.h, MAX_ARG_STRLEN). Variables that are made of each other
// may be of any length, and a pod that has one has never run.
const maxText = 128 << 10

func tooLong(at string) error {
	return refused(Unsupported, at, "no program starts with a variable or an argument above %d bytes; use a volume", maxText-1)
}

// expand makes of a text what the kubelet made of it.
func (e *environment) expand(text string) variable {
	v, size := variable{known: true}, len(text)
	v.value = expand.Text(text, func(name string) (string, bool) {
		used, declared := e.variables[name]
		if size += len(used.value); used.long || size > 2*maxText {
			v.long = true
			return "", declared
		}
		v.hidden = v.hidden || used.hidden
		v.known = v.known && (used.known || !declared && !ofKubernetes(name))
		return used.value, declared
	})
	return v
}

// hides tells whether the kubelet would need a hidden variable for a text.
func (e *environment) hides(text string) bool { return e.expand(text).hidden }

// template words a text for lock-exec, which sees every variable of the process,
// those of the image as well: what the kubelet would leave alone is escaped.
func (e *environment) template(text string) string {
	var b strings.Builder
	for _, p := range expand.Parts(text) {
		v, declared := e.variables[p.Text]
		switch {
		case !p.Name:
			b.WriteString(expand.Escape(p.Text))
		case declared && v.known && !v.hidden:
			b.WriteString(expand.Escape(v.value))
		case declared || ofKubernetes(p.Text):
			b.WriteString(p.String())
		default:
			b.WriteString(expand.Escape(p.String()))
		}
	}
	return b.String()
}

func (e *environment) derive(name, text string, v variable) {
	d := derived{name: name, text: e.template(text), uses: map[string]int{}, variable: v}
	for _, p := range expand.Parts(d.text) {
		if p.Name {
			d.uses[p.Text] = e.variables[p.Text].entry
		}
	}
	e.derived = append(e.derived, d)
}

// verify refuses what lock-exec could not make: it begins when all is defined.
func (e *environment) verify() error {
	e.derived = slices.DeleteFunc(e.derived, func(d derived) bool { return e.variables[d.name].entry != d.entry })
	for _, d := range e.derived {
		for _, name := range slices.Sorted(maps.Keys(d.uses)) {
			if e.variables[name].entry != d.uses[name] {
				return refused(Unsupported, d.at+".value", "a later entry gives %s another value, and the one here must not stand in a manifest; use two names", name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.variables)) {
		if v := e.variables[name]; v.long {
			return tooLong(v.at)
		}
	}
	for _, name := range e.files() {
		if clean, ok := cleanPath(name); !ok || clean != name || strings.Contains(name, "/") || strings.HasPrefix(name, ".tmp-") {
			return refused(UnsafePath, e.variables[name].at, "%q can't be the name of a file, from which the variable is to come; choose another name", name)
		}
	}
	return nil
}

// files names the variables that lock-exec reads from files, sorted.
func (e *environment) files() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(e.variables)) {
		if v := e.variables[name]; v.hidden && v.known {
			names = append(names, name)
		}
	}
	return names
}

// literal is what makes the kubelet set a variable to just this value.
func literal(name, value string) v1.EnvVar {
	return v1.EnvVar{Name: name, Value: expand.Escape(value)}
}
