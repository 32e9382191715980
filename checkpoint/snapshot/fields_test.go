package snapshot

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A field that the API gains has no fate, and a fate whose field is gone is a
// mistake.
func TestEveryFieldHasAFate(t *testing.T) {
	require.Empty(t, complaints())
	for name, table := range fates {
		for field, f := range table {
			assert.NotEmpty(t, f.why, "%s.%s has no reason", name, field)
			assert.Equal(t, f.verb == refuses, f.help != "", "%s.%s: a refusal, and nothing else, says what to do", name, field)
		}
	}
}

// Each fate is missed, however deep in the spec its field is.
func TestAMissingFateIsFound(t *testing.T) {
	for name, table := range fates {
		for field, f := range table {
			delete(table, field)
			assert.Contains(t, complaints(), name+"."+field+" has no fate")
			table[field] = f
		}
	}
}

// complaints compares the table with the types of the API.
func complaints() (list []string) {
	reached := map[string]bool{}
	walk(reflect.TypeFor[v1.PodSpec](), func(typ reflect.Type) {
		reached[typ.Name()] = true
		known := map[string]bool{}
		for field := range typ.Fields() {
			name := jsonName(field)
			known[name] = true
			switch f, ok := fates[typ.Name()][name]; {
			case name == "":
			case !ok:
				list = append(list, typ.Name()+"."+name+" has no fate")
			case f.verb != keeps && f.verb != transforms:
			case !appliesTo(field.Type):
				list = append(list, typ.Name()+"."+name+" has fields that no fate reaches")
			}
		}
		for name := range fates[typ.Name()] {
			if !known[name] {
				list = append(list, typ.Name()+" has no field "+name)
			}
		}
	})
	for name := range fates {
		if !reached[name] {
			list = append(list, "no spec contains a "+name)
		}
	}
	return list
}

// walk visits each type of the API once whose fields have fates of their own.
func walk(typ reflect.Type, visit func(reflect.Type)) {
	seen := map[reflect.Type]bool{}
	var enter func(reflect.Type)
	enter = func(typ reflect.Type) {
		typ = inner(typ)
		if typ.Kind() != reflect.Struct || !isAPI(typ) || seen[typ] {
			return
		}
		seen[typ] = true
		visit(typ)
		for field := range typ.Fields() {
			name := jsonName(field)
			if f := fates[typ.Name()][name]; name == "" || f.verb == keeps || f.verb == transforms {
				enter(field.Type)
			}
		}
	}
	enter(typ)
}

func inner(typ reflect.Type) reflect.Type {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	return typ
}

// appliesTo tells whether the fate of a field, with those of the fields in it, is
// all that there is to say of a type.
func appliesTo(typ reflect.Type) bool {
	switch typ = inner(typ); typ.Kind() {
	case reflect.Struct:
		return isAPI(typ) || typ == reflect.TypeFor[resource.Quantity]() || typ == reflect.TypeFor[intstr.IntOrString]()
	case reflect.Map:
		return typ.Elem().Kind() == reflect.String || typ.Elem() == reflect.TypeFor[resource.Quantity]()
	case reflect.Interface, reflect.Array:
		return false
	}
	return true
}

// An API type may gain a field between our release and our table.
func TestFieldWithoutFateIsRefused(t *testing.T) {
	table := fates["Sysctl"]
	fates["Sysctl"] = fields{"name": table["name"]}
	t.Cleanup(func() { fates["Sysctl"] = table })

	err := applyFates(&v1.PodSpec{SecurityContext: &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "a"}, {Name: "a", Value: "b"}}}})
	u := unprotectable(t, err)
	require.Equal(t, "spec.securityContext.sysctls[1].value", u.Field)
	require.Equal(t, Unsupported, u.Reason)
}

// Each fate of the table is what happens to a pod that sets just that field.
func TestTableIsObeyed(t *testing.T) {
	places := map[reflect.Type]func(*v1.PodSpec) reflect.Value{
		reflect.TypeFor[v1.PodSpec](): func(s *v1.PodSpec) reflect.Value { return reflect.ValueOf(s).Elem() },
	}
	walk(reflect.TypeFor[v1.PodSpec](), func(typ reflect.Type) {
		at := places[typ]
		for i := range typ.NumField() {
			name := jsonName(typ.Field(i))
			f := fates[typ.Name()][name]
			if next := inner(typ.Field(i).Type); places[next] == nil && f.verb != drops && f.verb != refuses {
				places[next] = func(s *v1.PodSpec) reflect.Value { return open(at(s).Field(i)) }
			}
			if name == "" {
				continue
			}
			var spec v1.PodSpec
			holder := at(&spec)
			setNonZero(holder.Field(i))
			err := applyFates(&spec)
			switch f.verb {
			case refuses:
				u := unprotectable(t, err)
				assert.Regexp(t, `\b`+name+`$`, u.Field)
				assert.Contains(t, u.Help, f.help)
			case drops:
				require.NoError(t, err, name)
				assert.True(t, holder.Field(i).IsZero(), name)
			case keeps, transforms:
				require.NoError(t, err, name)
				assert.False(t, holder.Field(i).IsZero(), "%s.%s", typ.Name(), name)
			}
		}
	})
}

// open makes the value that is somewhere in v.
func open(v reflect.Value) reflect.Value {
	for {
		switch v.Kind() {
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			v = v.Elem()
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			v = v.Index(0)
		default:
			return v
		}
	}
}

func setNonZero(v reflect.Value) {
	switch v := open(v); v.Kind() {
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Struct:
		switch typ := v.Type(); {
		case typ == reflect.TypeFor[resource.Quantity]():
			v.Set(reflect.ValueOf(resource.MustParse("1")))
		case typ == reflect.TypeFor[intstr.IntOrString]():
			v.Set(reflect.ValueOf(intstr.FromInt32(1)))
		default:
			for i := range v.NumField() {
				if f := v.Field(i); f.Kind() == reflect.Map {
					setNonZero(f)
				}
			}
		}
	default:
		panic(fmt.Sprintf("no value of %s", v.Type()))
	}
}

func unprotectable(t *testing.T, err error) *Unprotectable {
	t.Helper()
	var u *Unprotectable
	require.ErrorAs(t, err, &u)
	return u
}
