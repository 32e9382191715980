package snapshot

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// A field that the API gains has no fate, and a fate whose field is gone is a
// mistake.
func TestEveryFieldHasAFate(t *testing.T) {
	seen := map[string]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || !isAPI(typ) || seen[typ.Name()] {
			return
		}
		seen[typ.Name()] = true
		known := map[string]bool{}
		for field := range typ.Fields() {
			name := jsonName(field)
			if name == "" {
				walk(field.Type)
				continue
			}
			known[name] = true
			f, ok := fates[typ.Name()][name]
			assert.True(t, ok, "%s.%s has no fate", typ.Name(), name)
			assert.NotEmpty(t, f.why, "%s.%s has no reason", typ.Name(), name)
			assert.Equal(t, f.verb == refuses, f.help != "", "%s.%s: a refusal, and nothing else, says what to do", typ.Name(), name)
			if f.verb == keeps || f.verb == transforms {
				walk(field.Type)
			}
		}
		for name := range fates[typ.Name()] {
			assert.True(t, known[name], "%s has no field %s", typ.Name(), name)
		}
	}
	walk(reflect.TypeFor[v1.PodSpec]())
	for name := range fates {
		assert.True(t, seen[name], "no spec contains a %s", name)
	}
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

// Each refusal and each drop of the table is what happens to a pod that sets
// just that field.
func TestTableIsObeyed(t *testing.T) {
	for _, c := range []struct {
		typ string
		at  func(*v1.PodSpec) reflect.Value
	}{
		{"PodSpec", func(s *v1.PodSpec) reflect.Value { return reflect.ValueOf(s).Elem() }},
		{"Container", func(s *v1.PodSpec) reflect.Value {
			s.Containers = []v1.Container{{}}
			return reflect.ValueOf(&s.Containers[0]).Elem()
		}},
		{"VolumeSource", func(s *v1.PodSpec) reflect.Value {
			s.Volumes = []v1.Volume{{}}
			return reflect.ValueOf(&s.Volumes[0].VolumeSource).Elem()
		}},
	} {
		for i := range reflect.Zero(c.at(&v1.PodSpec{}).Type()).NumField() {
			var spec v1.PodSpec
			holder := c.at(&spec)
			name := jsonName(holder.Type().Field(i))
			setNonZero(holder.Field(i))
			err := applyFates(&spec)
			switch f := fates[c.typ][name]; f.verb {
			case refuses:
				u := unprotectable(t, err)
				assert.Regexp(t, `\b`+name+`$`, u.Field)
				assert.Contains(t, u.Help, f.help)
			case drops:
				require.NoError(t, err, name)
				assert.True(t, holder.Field(i).IsZero(), name)
			case keeps, transforms:
				require.NoError(t, err, name)
				assert.False(t, holder.Field(i).IsZero(), name)
			}
		}
	}
}

func setNonZero(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() == reflect.Map {
				setNonZero(f)
			}
		}
	}
}

func unprotectable(t *testing.T, err error) *Unprotectable {
	t.Helper()
	var u *Unprotectable
	require.ErrorAs(t, err, &u)
	return u
}
