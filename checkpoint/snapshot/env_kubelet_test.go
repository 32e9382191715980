package snapshot

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// kubelet is a model of how a kubelet and a runtime start a container, and run a
// command in it, as far as environment and command lines go. It is written after
// k8s.io/kubernetes v1.37.2, pkg/kubelet/kubelet_pods.go and
// pkg/kubelet/container/helpers.go, and shares no code with what it judges.
type kubelet struct {
	objects  Objects
	services map[string]string // environment of the services it knows
	fields   map[string]string // of the pod, by path
	files    map[string]string // by volume, path and key
}

// process is what exec(2) gets.
type process struct {
	argv []string
	env  map[string]string
}

// start returns the container's first process.
func (k kubelet) start(c *v1.Container, image Image, imageEnv map[string]string) (process, error) {
	vars, err := k.variables(c)
	if err != nil {
		return process{}, err
	}
	for name, value := range k.services {
		if _, ok := vars[name]; !ok {
			vars[name] = value
		}
	}
	p := process{env: map[string]string{}}
	for name, value := range imageEnv {
		p.env[name] = value
	}
	for name, value := range vars {
		p.env[name] = value
	}
	command, args := k.words(c.Command, vars), k.words(c.Args, vars)
	if len(command) == 0 {
		if len(args) == 0 {
			args = image.Command
		}
		command = image.Entrypoint
		if len(command) == 1 && command[0] == "" { // as Docker writes down none
			command = nil
		}
	}
	p.argv = slices.Concat(command, args)
	if len(p.argv) == 0 {
		return process{}, errors.New("no command specified")
	}
	return p, nil
}

// probe returns what an exec probe runs in a container of that environment.
func (k kubelet) probe(c *v1.Container, command []string, env map[string]string) process {
	raw := map[string]string{}
	for _, e := range c.Env {
		raw[e.Name] = e.Value
	}
	return process{argv: k.words(command, raw), env: env}
}

func (k kubelet) words(words []string, vars map[string]string) (out []string) {
	for _, w := range words {
		out = append(out, dollar(w, vars))
	}
	return out
}

func (k kubelet) variables(c *v1.Container) (map[string]string, error) {
	vars := map[string]string{}
	for _, from := range c.EnvFrom {
		if r := from.ConfigMapRef; r != nil {
			cm := k.objects.ConfigMaps[r.Name]
			if cm == nil {
				if r.Optional != nil && *r.Optional {
					continue
				}
				return nil, errors.New("not found")
			}
			for key, value := range cm.Data {
				vars[from.Prefix+key] = value
			}
		} else if r := from.SecretRef; r != nil {
			secret := k.objects.Secrets[r.Name]
			if secret == nil {
				if r.Optional != nil && *r.Optional {
					continue
				}
				return nil, errors.New("not found")
			}
			for key, value := range secret.Data {
				vars[from.Prefix+key] = string(value)
			}
		}
	}
	for _, e := range c.Env {
		value := e.Value
		if value != "" {
			seen := map[string]string{}
			for n, v := range k.services {
				seen[n] = v
			}
			for n, v := range vars {
				seen[n] = v
			}
			value = dollar(value, seen)
		} else if e.ValueFrom != nil {
			v, skip, err := k.reference(e.ValueFrom)
			if err != nil {
				return nil, err
			}
			if skip {
				continue
			}
			value = v
		}
		vars[e.Name] = value
	}
	return vars, nil
}

func (k kubelet) reference(from *v1.EnvVarSource) (value string, skip bool, err error) {
	var ok bool
	var optional *bool
	switch {
	case from.FieldRef != nil:
		value, ok = k.fields[from.FieldRef.FieldPath]
	case from.ResourceFieldRef != nil:
		value, ok = k.fields[from.ResourceFieldRef.Resource]
	case from.ConfigMapKeyRef != nil:
		optional = from.ConfigMapKeyRef.Optional
		if cm := k.objects.ConfigMaps[from.ConfigMapKeyRef.Name]; cm != nil {
			value, ok = cm.Data[from.ConfigMapKeyRef.Key]
		}
	case from.SecretKeyRef != nil:
		optional = from.SecretKeyRef.Optional
		if secret := k.objects.Secrets[from.SecretKeyRef.Name]; secret != nil {
			data, found := secret.Data[from.SecretKeyRef.Key]
			value, ok = string(data), found
		}
	case from.FileKeyRef != nil:
		r := from.FileKeyRef
		optional = r.Optional
		value, ok = k.files[fmt.Sprintf("%s/%s:%s", r.VolumeName, r.Path, r.Key)]
	}
	if ok {
		return value, false, nil
	}
	if optional != nil && *optional {
		return "", true, nil
	}
	return "", false, errors.New("not found")
}

// dollar is third_party/forked/golang/expansion, byte by byte.
func dollar(in string, vars map[string]string) string {
	out := ""
	for i := 0; i < len(in); i++ {
		if in[i] != '$' || i+1 == len(in) {
			out += in[i : i+1]
			continue
		}
		switch in[i+1] {
		case '$':
			out += "$"
			i++
		case '(':
			end := strings.IndexByte(in[i:], ')')
			if end < 0 {
				out += "$("
				i++
				continue
			}
			name := in[i+2 : i+end]
			if value, ok := vars[name]; ok {
				out += value
			} else {
				out += "$(" + name + ")"
			}
			i += end
		default:
			rest := []rune(in[i+1:])
			out += "$" + string(rest[0])
			if rest[0] == '\uFFFD' && !strings.HasPrefix(in[i+1:], "\uFFFD") {
				i++
			} else {
				i += len(string(rest[0]))
			}
		}
	}
	return out
}
