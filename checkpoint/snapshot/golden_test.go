package snapshot

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what comes out into testdata")

const (
	lockDir    = "/run/lock/pod-checkpointer"
	binDir     = "/opt/pod-checkpointer/bin"
	activation = "0123456789abcdef0123456789abcdef"
)

var config = Config{LockDir: lockDir, BinDir: binDir, Endpoint: "https://10.0.0.1:6443"}

// Each file of testdata holds parent.yaml and what it names: Secrets, ConfigMaps,
// tokens, by account/audience, and images. Then what must come of them: static.yaml, payload
// and facts, or refused.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			require.NoError(t, err)
			in, want := split(archive)
			got := outcome(t, in)
			if *update {
				archive.Files = append(in, got...)
				require.NoError(t, os.WriteFile(file, txtar.Format(archive), 0o600))
				return
			}
			require.Equal(t, text(want), text(got))
		})
	}
}

func split(a *txtar.Archive) (in, want []txtar.File) {
	for _, f := range a.Files {
		if slices.ContainsFunc([]string{"parent", "secret", "configmap", "tokens", "images"}, func(kind string) bool { return strings.HasPrefix(f.Name, kind) }) {
			in = append(in, f)
		} else {
			want = append(want, f)
		}
	}
	return in, want
}

func text(files []txtar.File) string {
	return string(txtar.Format(&txtar.Archive{Files: files}))
}

func outcome(t *testing.T, in []txtar.File) []txtar.File {
	t.Helper()
	pod, objects := parse(t, in)
	s, err := Take(pod, objects, config)
	if err != nil {
		u := unprotectable(t, err)
		return []txtar.File{{Name: "refused", Data: fmt.Appendf(nil, "reason %s\nfield  %s\nhelp   %s\n", u.Reason, u.Field, u.Help)}}
	}
	paths := map[string]string{}
	var payload strings.Builder
	for _, v := range s.Volumes {
		paths[v.Name] = "/var/lib/pod-checkpointer/activations/" + activation + "/" + v.Name
		fmt.Fprintf(&payload, "%s optional=%v\n", v.Name, v.Optional)
		for _, f := range v.Files {
			fmt.Fprintf(&payload, "  %v %d:%d %s %q\n", f.Mode, f.UID, f.GID, f.Path, f.Data)
		}
	}
	manifest, err := Manifest(s.Pod, activation, "master-1", 7, paths)
	require.NoError(t, err)
	static, err := yaml.JSONToYAML(manifest)
	require.NoError(t, err)

	out := []txtar.File{{Name: "static.yaml", Data: static}}
	if payload.Len() > 0 {
		out = append(out, txtar.File{Name: "payload", Data: []byte(payload.String())})
	}
	return append(out, txtar.File{Name: "facts", Data: facts(s)})
}

func facts(s *Snapshot) []byte {
	var b strings.Builder
	if s.Lock != nil {
		fmt.Fprintf(&b, "lock    %s %s by %s with %s\n", s.Lock.Name, s.Lock.Path, s.Lock.Container, s.LockExec)
	}
	if s.Lock == nil && s.LockExec != "" {
		fmt.Fprintf(&b, "starts  by %s\n", s.LockExec)
	}
	if s.Ready != nil {
		fmt.Fprintf(&b, "ready   %s %s%s within %s %v\n", s.Ready.Scheme, s.Ready.Host, s.Ready.Path, s.Ready.Timeout, s.Ready.Header)
	}
	fmt.Fprintf(&b, "grace   %s\nimages  %s\n", s.Grace, strings.Join(s.Images, " "))
	if len(s.After) > 0 {
		fmt.Fprintf(&b, "after   %s\n", strings.Join(s.After, " "))
	}
	for _, f := range s.Findings {
		fmt.Fprintf(&b, "finding %s\n", f)
	}
	return []byte(b.String())
}

func parse(t testing.TB, in []txtar.File) (*v1.Pod, Objects) {
	t.Helper()
	pod, o := &v1.Pod{}, Objects{Secrets: map[string]*v1.Secret{}, ConfigMaps: map[string]*v1.ConfigMap{}, Tokens: map[TokenRef]string{}}
	for _, f := range in {
		switch {
		case f.Name == "parent.yaml":
			require.NoError(t, yaml.UnmarshalStrict(f.Data, pod))
		case strings.HasPrefix(f.Name, "secret"):
			var secret v1.Secret
			require.NoError(t, yaml.UnmarshalStrict(f.Data, &secret))
			o.Secrets[secret.Name] = &secret
		case strings.HasPrefix(f.Name, "tokens"):
			var tokens map[string]string
			require.NoError(t, yaml.UnmarshalStrict(f.Data, &tokens))
			for name, token := range tokens {
				account, audience, _ := strings.Cut(name, "/")
				o.Tokens[TokenRef{account, audience}] = token
			}
		case strings.HasPrefix(f.Name, "images"):
			require.NoError(t, yaml.UnmarshalStrict(f.Data, &o.Images))
		default:
			var configMap v1.ConfigMap
			require.NoError(t, yaml.UnmarshalStrict(f.Data, &configMap))
			o.ConfigMaps[configMap.Name] = &configMap
		}
	}
	return pod, o
}

// parents are the inputs of testdata, for tests that want every kind of pod.
func parents(t testing.TB) (pods []*v1.Pod, objects []Objects) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		require.NoError(t, err)
		in, _ := split(archive)
		pod, o := parse(t, in)
		pods, objects = append(pods, pod), append(objects, o)
	}
	return pods, objects
}
