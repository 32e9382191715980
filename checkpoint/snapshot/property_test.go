package snapshot

import (
	"encoding/json"
	"math/rand"
	"reflect"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// FuzzTake: whatever the API server says, Take does not panic, and what it
// makes keeps the promises of verifySnapshot.
func FuzzTake(f *testing.F) {
	pods, objects := parents(f)
	for i := range pods {
		pod, err := json.Marshal(pods[i])
		require.NoError(f, err)
		for _, s := range objects[i].Secrets {
			secret, err := json.Marshal(s)
			require.NoError(f, err)
			f.Add(pod, secret)
		}
		f.Add(pod, []byte("{}"))
	}
	f.Fuzz(func(t *testing.T, podJSON, secretJSON []byte) {
		var pod v1.Pod
		var secret v1.Secret
		if json.Unmarshal(podJSON, &pod) != nil || json.Unmarshal(secretJSON, &secret) != nil {
			return
		}
		verifySnapshot(t, &pod, Objects{Secrets: map[string]*v1.Secret{secret.Name: &secret}})
	})
}

// The pods of testdata, each with a few fields set to anything.
func TestTakeOfAnyPod(t *testing.T) {
	pods, objects := parents(t)
	r := rand.New(rand.NewSource(1))
	taken := 0
	for n := range 4000 {
		pod := pods[n%len(pods)].DeepCopy()
		mutate(r, reflect.ValueOf(&pod.Spec).Elem(), 0.02)
		if verifySnapshot(t, pod, objects[n%len(pods)]) {
			taken++
		}
	}
	assert.Greater(t, taken, 400, "too few pods could be made static for the rest to be a test")
}

func verifySnapshot(t *testing.T, pod *v1.Pod, o Objects) bool {
	t.Helper()
	before := pod.DeepCopy()
	s, err := Take(pod, o, config)
	require.Equal(t, before, pod, "Take changed the parent")
	if err != nil {
		require.ErrorAs(t, err, new(*Unprotectable))
		return false
	}
	first := marshal(t, s.Pod)
	again, err := Take(pod.DeepCopy(), o, config)
	require.NoError(t, err)
	require.Equal(t, string(first), string(marshal(t, again.Pod)), "not deterministic")
	require.Equal(t, s.Volumes, again.Volumes, "not deterministic")
	require.NotRegexp(t, references, string(first))

	_, err = Take(s.Pod, o, config)
	require.ErrorAs(t, err, new(*Unprotectable))

	stored, err := Decode(first)
	require.NoError(t, err)
	require.Equal(t, string(first), string(marshal(t, stored)), "storing loses something")
	facts, err := FactsOf(stored)
	require.NoError(t, err)
	require.Equal(t, s.Facts, facts)

	paths := map[string]string{}
	for _, v := range s.Volumes {
		paths[v.Name] = "/state/" + v.Name
	}
	_, err = Manifest(stored, activation, "node", 1, paths)
	require.NoError(t, err)
	require.Equal(t, string(first), string(marshal(t, stored)), "Manifest changed its pod")
	return true
}

// references are the JSON names of all that leads to an object of the API server,
// and of what a static pod must not have. No value in testdata contains them.
var references = regexp.MustCompile(`"(serviceAccountName|serviceAccount|imagePullSecrets|secretKeyRef|configMapKeyRef|` +
	`secretRef|configMapRef|secret|configMap|projected|persistentVolumeClaim|csi|ephemeral|ephemeralContainers|glusterfs|` +
	`azureFile|resourceClaims|claims|nodeSelector|affinity|nodeName|schedulingGates|runtimeClassName|labels|hostPort|` +
	`ownerReferences|finalizers|topologySpreadConstraints|readinessGates|activeDeadlineSeconds)":`)

func marshal(t *testing.T, v any) []byte {
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
			v.SetString([]string{"", "a", "/a", "$(A)", "healthz", "..", "metadata.name"}[r.Intn(7)])
		}
	case reflect.Bool:
		v.SetBool(v.Bool() != hit)
	case reflect.Int32, reflect.Int64:
		if hit {
			v.SetInt([]int64{-1, 0, 1, 1 << 30}[r.Intn(4)])
		}
	}
}
