package snapshot

import (
	"encoding/json"
	"io/fs"
	"math/rand"
	"path"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// FuzzTake: whatever the API server says, Take does not panic, and what it
// makes keeps the promises of verifySnapshot. The seed sets a few fields to anything.
func FuzzTake(f *testing.F) {
	pods, objects := parents(f)
	for i := range pods {
		for seed := range int64(8) {
			f.Add(marshal(f, pods[i]), marshal(f, spell(objects[i])), seed)
		}
	}
	f.Fuzz(func(t *testing.T, podJSON, objectsJSON []byte, seed int64) {
		var pod v1.Pod
		var o spelled
		if json.Unmarshal(podJSON, &pod) != nil || json.Unmarshal(objectsJSON, &o) != nil {
			return
		}
		if seed != 0 {
			mutate(rand.New(rand.NewSource(seed)), reflect.ValueOf(&pod.Spec).Elem(), 0.02)
		}
		verifySnapshot(t, &pod, o.read())
	})
}

// FuzzPath: a file of any name is in its volume, or there is none.
func FuzzPath(f *testing.F) {
	for _, name := range []string{"a", "a/b", "./a", "a//b", "", ".", "..", "../a", "a/../b", "..data/a", "/a", "a\x00", "a/", "..a", "a/..b", "\xff/a"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		pod := guardedPod(t)
		secret(v1.SecretVolumeSource{Items: []v1.KeyToPath{{Key: "a", Path: name}}})(pod)
		verifySnapshot(t, pod, Objects{Secrets: map[string]*v1.Secret{"cert": {Data: map[string][]byte{"a": nil}}}})
		secret(v1.SecretVolumeSource{})(pod)
		verifySnapshot(t, pod, Objects{Secrets: map[string]*v1.Secret{"cert": {Data: map[string][]byte{name: nil}}}})
	})
}

// The pods of testdata, each with a few fields set to anything.
func TestTakeOfAnyPod(t *testing.T) {
	pods, objects := parents(t)
	r := rand.New(rand.NewSource(1))
	taken := 0
	for n := range 1000 {
		pod := pods[n%len(pods)].DeepCopy()
		mutate(r, reflect.ValueOf(&pod.Spec).Elem(), 0.02)
		if verifySnapshot(t, pod, objects[n%len(pods)]) {
			taken++
		}
	}
	assert.Greater(t, taken, 100, "too few pods could be made static for the rest to be a test")
}

// hush is in every secret value of testdata that goes into an environment.
const hush = "hush"

// verifySnapshot tells whether pod could be made static.
func verifySnapshot(t *testing.T, pod *v1.Pod, o Objects) bool {
	t.Helper()
	before := pod.DeepCopy()
	s, err := Take(pod, o, config)
	require.Equal(t, before, pod, "Take changed the parent")
	if err != nil {
		require.ErrorAs(t, err, new(*Unprotectable))
		require.NotContains(t, err.Error(), hush)
		return false
	}
	require.NotContains(t, string(marshal(t, manifest(t, s))), hush)
	verifyTwice(t, s, pod, o)
	verifyStored(t, s)
	verifyFiles(t, s.Volumes)
	verifyConfined(t, pod, &s.Pod.Spec)
	verifyAlone(t, s.Pod)
	return true
}

// verifyTwice: the same parent gives the same bytes, and a static pod is made
// static by leaving it as it is.
func verifyTwice(t *testing.T, s *Snapshot, parent *v1.Pod, o Objects) {
	t.Helper()
	again, err := Take(parent.DeepCopy(), o, config)
	require.NoError(t, err)
	require.Equal(t, string(marshal(t, s.Pod)), string(marshal(t, again.Pod)), "not deterministic")
	require.Equal(t, s.Volumes, again.Volumes, "not deterministic")

	_, err = Take(s.Pod, o, config)
	require.ErrorAs(t, err, new(*Unprotectable), "a checkpoint has no checkpoint")

	static := manifest(t, s)
	second := parent.DeepCopy()
	second.Spec = static.Spec
	again, err = Take(second, o, config)
	require.NoError(t, err)
	require.Equal(t, string(marshal(t, static.Spec)), string(marshal(t, again.Pod.Spec)), "not idempotent")
}

// verifyStored: a generation on disk is all that a start needs.
func verifyStored(t *testing.T, s *Snapshot) {
	t.Helper()
	first := marshal(t, s.Pod)
	stored, err := Decode(first)
	require.NoError(t, err)
	require.Equal(t, string(first), string(marshal(t, stored)), "storing loses something")
	facts, err := FactsOf(stored)
	require.NoError(t, err)
	require.Equal(t, s.Facts, facts)
	manifest(t, s)
	require.Equal(t, string(first), string(marshal(t, s.Pod)), "Manifest changed its pod")
}

// verifyFiles: each volume can be staged, and nothing is written beside it.
func verifyFiles(t *testing.T, volumes []Volume) {
	t.Helper()
	for _, v := range volumes {
		last := ""
		for _, f := range v.Files {
			require.True(t, fs.ValidPath(f.Path) && f.Path != "." && !strings.HasPrefix(f.Path, ".."), "%s/%q", v.Name, f.Path)
			require.True(t, last < f.Path, "%s/%q is there twice, or not sorted", v.Name, f.Path)
			require.False(t, last != "" && strings.HasPrefix(f.Path, last+"/"), "%s/%q is a directory too", v.Name, last)
			require.Equal(t, f.Mode.Perm(), f.Mode, f.Path)
			require.False(t, f.UID < 0 || f.GID < 0, "%s/%q is of %d:%d", v.Name, f.Path, f.UID, f.GID)
			last = f.Path
		}
	}
}

// verifyAlone: neither an object of the API server is named, nor anything that a
// static pod must not have.
func verifyAlone(t *testing.T, static *v1.Pod) {
	t.Helper()
	var spec any
	require.NoError(t, json.Unmarshal(marshal(t, static.Spec), &spec))
	require.Empty(t, static.Labels)
	require.Empty(t, static.OwnerReferences)
	require.Empty(t, static.Finalizers)
	eachKey(spec, func(key string) { require.NotContains(t, foreign, key) })
}

// foreign are the JSON names of all that leads to an object of the API server,
// and of what a static pod must not have.
var foreign = strings.Fields(`serviceAccountName serviceAccount imagePullSecrets secretKeyRef configMapKeyRef
	secretRef configMapRef secret configMap projected persistentVolumeClaim csi ephemeral ephemeralContainers
	glusterfs azureFile resourceClaims claims nodeSelector affinity nodeName schedulingGates runtimeClassName
	hostPort topologySpreadConstraints readinessGates activeDeadlineSeconds`)

func eachKey(value any, do func(string)) {
	switch value := value.(type) {
	case []any:
		for _, v := range value {
			eachKey(v, do)
		}
	case map[string]any:
		for key, v := range value {
			do(key)
			eachKey(v, do)
		}
	}
}

// manifest is the static pod as the kubelet gets it.
func manifest(t *testing.T, s *Snapshot) *v1.Pod {
	t.Helper()
	paths := map[string]string{}
	for _, v := range s.Volumes {
		paths[v.Name] = path.Join("/state", v.Name)
	}
	data, err := Manifest(s.Pod, activation, "node", 1, paths)
	require.NoError(t, err)
	var static v1.Pod
	require.NoError(t, json.Unmarshal(data, &static))
	return &static
}

// spelled are objects as JSON has them, which knows no structs as keys.
type spelled struct {
	Secrets    map[string]*v1.Secret
	ConfigMaps map[string]*v1.ConfigMap
	Tokens     map[string]string // by account/audience
	Images     map[string]Image
}

func spell(o Objects) spelled {
	s := spelled{o.Secrets, o.ConfigMaps, map[string]string{}, o.Images}
	for ref, token := range o.Tokens {
		s.Tokens[ref.ServiceAccount+"/"+ref.Audience] = token
	}
	return s
}

func (s spelled) read() Objects {
	o := Objects{Secrets: s.Secrets, ConfigMaps: s.ConfigMaps, Tokens: map[TokenRef]string{}, Images: s.Images}
	for name, token := range s.Tokens {
		account, audience, _ := strings.Cut(name, "/")
		o.Tokens[TokenRef{account, audience}] = token
	}
	return o
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}

// mutate sets each scalar, and adds each absent part, with some likelihood.
func mutate(r *rand.Rand, v reflect.Value, likely float64) {
	hit := r.Float64() < likely
	switch v.Kind() {
	case reflect.Pointer:
		switch {
		case v.IsNil() && hit:
			v.Set(reflect.New(v.Type().Elem()))
			mutate(r, v.Elem(), 0.3)
		case !v.IsNil():
			mutate(r, v.Elem(), likely)
		}
	case reflect.Slice:
		if v.Len() == 0 && hit {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			mutate(r, v.Index(0), 0.3)
		}
		for i := range v.Len() {
			mutate(r, v.Index(i), likely)
		}
	case reflect.Struct:
		if !isAPI(v.Type()) {
			return
		}
		for i := range v.NumField() {
			mutate(r, v.Field(i), likely)
		}
	case reflect.String:
		if hit {
			words := []string{"", "a", "/a", "$(A)", "healthz", "..", "metadata.name", "metadata.labels", "requests.cpu", "limits.cpu", "web"}
			v.SetString(words[r.Intn(len(words))])
		}
	case reflect.Bool:
		v.SetBool(v.Bool() != hit)
	case reflect.Int32, reflect.Int64:
		if hit {
			v.SetInt([]int64{-1, 0, 1, 1 << 30}[r.Intn(4)])
		}
	}
}
