package snapshot

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// A selection is what a volume takes of one Secret or ConfigMap.
type selection struct {
	kind     Kind
	name     string
	optional bool // the object may be absent, and so may each key
	items    []v1.KeyToPath
	at       string // path of the source in the pod
	nameAt   string // of the object's name, below at
}

// addObject does what the kubelet's MakePayload does: without items every key is
// a file, else only those that they name (pkg/volume/secret/secret.go and
// pkg/volume/configmap/configmap.go, v1.37.2).
func (t *tree) addObject(s selection, o Objects) error {
	data, found := o.data(s.kind, s.name)
	if !found && !s.optional {
		return refused(missing(s.kind), s.at+s.nameAt, "there is no %s %q; create it, or set optional: true", s.kind, s.name)
	}
	if len(s.items) == 0 {
		for _, key := range slices.Sorted(maps.Keys(data)) {
			if err := t.add(s.at+s.nameAt, key, data[key], nil, nil); err != nil {
				return err
			}
		}
	}
	for i, item := range s.items {
		at := fmt.Sprintf("%s.items[%d]", s.at, i)
		value, found := data[item.Key]
		switch {
		case found:
			if err := t.add(at+".path", item.Path, value, item.Mode, item.User); err != nil {
				return err
			}
		case !s.optional:
			return refused(missing(s.kind), at+".key", "the %s %q has no key %q; add it, or set optional: true", s.kind, s.name, item.Key)
		}
	}
	return nil
}

func missing(kind Kind) string {
	if kind == ConfigMap {
		return MissingConfigMap
	}
	return MissingSecret
}

// data returns all values of an object. Those of a ConfigMap are in two maps,
// which have no key in common.
func (o Objects) data(kind Kind, name string) (map[string][]byte, bool) {
	if kind == Secret {
		secret := o.Secrets[name]
		if secret == nil {
			return nil, false
		}
		return secret.Data, true
	}
	config := o.ConfigMaps[name]
	if config == nil {
		return nil, false
	}
	data := maps.Clone(config.BinaryData)
	if data == nil {
		data = make(map[string][]byte, len(config.Data))
	}
	for key, value := range config.Data {
		data[key] = []byte(value)
	}
	return data, true
}
