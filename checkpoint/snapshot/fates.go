package snapshot

import (
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// A fate is what becomes of one field of the parent.
type fate struct {
	verb verb
	why  string
	help string // of refuse: what the user can do
}

type verb int

const (
	keeps      verb = iota + 1 // as it is, its own fields by their own fates
	drops                      // emptied
	transforms                 // rewritten after this, its own fields by their own fates first
	refuses                    // a pod that sets it is unprotectable
)

// fields are the fates of one API type, by the fields' JSON names.
type fields map[string]fate

func keep(why string) fate         { return fate{verb: keeps, why: why} }
func drop(why string) fate         { return fate{verb: drops, why: why} }
func transform(why string) fate    { return fate{verb: transforms, why: why} }
func refuse(why, help string) fate { return fate{verb: refuses, why: why, help: help} }

// plain keeps the fields of a type of which all that is known works without an
// API server. They are named, so that a new one is not kept unseen.
func plain(names ...string) fields {
	f := fields{}
	for _, name := range names {
		f[name] = keep("works without an API server")
	}
	return f
}

// applyFates empties what is dropped and refuses what is refused or has no fate.
// Transformed fields are left for sanitize.
func applyFates(spec *v1.PodSpec) error {
	return apply(reflect.ValueOf(spec), "spec")
}

func apply(v reflect.Value, at string) error {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return apply(v.Elem(), at)
	case reflect.Slice:
		for i := range v.Len() {
			if err := apply(v.Index(i), fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
		return nil
	case reflect.Struct:
		if isAPI(v.Type()) {
			return applyStruct(v, at)
		}
	}
	return nil // a scalar, a map of scalars, or a quantity: the fate of its field was all
}

func applyStruct(v reflect.Value, at string) error {
	for i := range v.NumField() {
		value, name := v.Field(i), jsonName(v.Type().Field(i))
		if value.IsZero() {
			continue
		}
		if name == "" { // inlined: a type of its own, with no name in the path
			if err := apply(value, at); err != nil {
				return err
			}
			continue
		}
		if err := applyField(value, fates[v.Type().Name()][name], at+"."+name); err != nil {
			return err
		}
	}
	return nil
}

func applyField(value reflect.Value, f fate, at string) error {
	switch f.verb {
	case keeps, transforms:
		return apply(value, at)
	case drops:
		value.SetZero()
		return nil
	case refuses:
		return refused(Unsupported, at, "%s; %s", f.why, f.help)
	}
	return refused(Unsupported, at, "this version does not know the field; remove it, or use a newer pod-checkpointer")
}

func isAPI(t reflect.Type) bool {
	return t.PkgPath() == reflect.TypeFor[v1.Pod]().PkgPath()
}

// jsonName returns "" for a field that is inlined.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
