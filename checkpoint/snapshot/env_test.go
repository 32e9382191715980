package snapshot

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const printing = "print" // the program of the containers here: it says what it got

// stage is where the processes of this test run.
type stage struct {
	path     string // the directory of the programs, which all say what they got
	lockExec string // the real one
}

func newStage(t *testing.T) stage {
	t.Helper()
	s := stage{path: t.TempDir(), lockExec: filepath.Join(t.TempDir(), lockExec)}
	for file, source := range map[string]string{s.lockExec: "../../cmd/lock-exec", filepath.Join(s.path, printing): "./testdata/print"} {
		build := exec.Command("go", "build", "-o", file, source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.NoError(t, os.Symlink(printing, filepath.Join(s.path, lockExec)))
	return s
}

// run executes lock-exec, if that is the program, until it has become another one.
// mounts are where the paths in its flags are.
func (s stage) run(t *testing.T, p process, mounts map[string]string) process {
	t.Helper()
	if filepath.Base(p.argv[0]) != lockExec || len(p.argv) > 1 && p.argv[1] == "check" {
		return p
	}
	cmd := exec.Command(s.lockExec)
	cmd.Args = []string{lockExec}
	flags := true
	for _, word := range p.argv[1:] {
		flags = flags && word != "--"
		for path, at := range mounts {
			if flags {
				word = strings.ReplaceAll(word, path, at)
			}
		}
		cmd.Args = append(cmd.Args, word)
	}
	cmd.Env = []string{} // nil would be this test's
	for name, value := range p.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%q: %s", p.argv, stderr.String())
	var said [2][][]byte
	require.NoError(t, json.Unmarshal(out, &said))
	got := process{env: map[string]string{}}
	for _, word := range said[0] {
		got.argv = append(got.argv, string(word))
	}
	for _, entry := range said[1] {
		name, value, _ := strings.Cut(string(entry), "=")
		got.env[name] = value
	}
	return got
}

// processes are all that a kubelet starts in a container, by what for.
func (s stage) processes(t *testing.T, k kubelet, c *v1.Container, image Image, mounts map[string]string) (map[string]process, error) {
	t.Helper()
	imageEnv := map[string]string{"PATH": s.path, "IMAGE": "of the image", "HOME": "/root"}
	first, err := k.start(c, image, imageEnv)
	if err != nil {
		return nil, err
	}
	all := map[string]process{"command": s.run(t, first, mounts)}
	for name, p := range map[string]*v1.Probe{"liveness": c.LivenessProbe, "readiness": c.ReadinessProbe, "startup": c.StartupProbe} {
		if p != nil && p.Exec != nil {
			all[name] = s.run(t, k.probe(c, p.Exec.Command, first.env), mounts)
		}
	}
	if c.Lifecycle != nil {
		for name, h := range map[string]*v1.LifecycleHandler{"postStart": c.Lifecycle.PostStart, "preStop": c.Lifecycle.PreStop} {
			if h != nil && h.Exec != nil {
				all[name] = s.run(t, process{h.Exec.Command, first.env}, mounts)
			}
		}
	}
	// A check of a lock over the network makes no use of its environment.
	for name, p := range all {
		if line, ok := checkLine(p.argv); ok && line.rest[0] != "exec" {
			all[name] = process{argv: p.argv[1:]}
		}
	}
	return all, nil
}

const objectsYAML = `
secrets:
  db: {data: {USER: YWRtaW5TM0NSM1Q=, PASSWORD: UzNDUjNUJChVU0VSKSQk, EMPTY: ""}}
  other: {data: {PASSWORD: UzNDUjNULW90aGVy, "1st": UzNDUjNULTFzdA==, cm: UzNDUjNULWNt}}
  binary: {data: {raw: /lMzQ1IzVP8=}}
configMaps:
  config: {data: {HOST: db.example, cost: "$5 $(HOST) $$(HOST) $", cm: from-config, "2nd": odd-$(HOST), EMPTY: ""}, binaryData: {blob: AAE=}}
  more: {data: {HOST: more.example, PORT: "5432"}}
`

func testObjects(t testing.TB) Objects {
	t.Helper()
	var all struct {
		Secrets    map[string]*v1.Secret
		ConfigMaps map[string]*v1.ConfigMap
	}
	require.NoError(t, yaml.UnmarshalStrict([]byte(objectsYAML), &all))
	return Objects{Secrets: all.Secrets, ConfigMaps: all.ConfigMaps, Images: map[string]Image{
		"entry:1": {Entrypoint: []string{printing, "$(USER)"}, Command: []string{"from the image", "$$"}},
		"cmd:1":   {Command: []string{printing, "$(PASSWORD)"}},
		"empty:1": {Entrypoint: []string{""}, Command: []string{printing}},
		"none:1":  {},
	}}
}

// envPod is a pod with one container, of which text is the YAML.
func envPod(t testing.TB, text string) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{}
	pod.Name, pod.Namespace = "web-x7k2p", "kube-system"
	pod.Annotations = map[string]string{AnnotationCheckpoint: "true"}
	pod.Spec.EnableServiceLinks = new(false)
	c := v1.Container{Name: "web", Image: "web:1"}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &c))
	pod.Spec.Containers = []v1.Container{c}
	pod.Spec.Volumes = []v1.Volume{
		{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "lock", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: lockDir}}},
		{Name: "bin", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: binDir}}},
	}
	if strings.Contains(text, "/lock/web.lock") {
		pod.Annotations[AnnotationLock], pod.Spec.HostNetwork = "web", true
	}
	return pod
}

// compare says whether the processes of the checkpoint are those of the parent, and
// that no secret is in the manifest or in an error.
func (s stage) compare(t *testing.T, pod *v1.Pod, o Objects) (*Snapshot, error) {
	t.Helper()
	parent := kubelet{
		objects:  o,
		services: map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_PORT": "tcp://10.0.0.1:443"},
		fields:   map[string]string{"status.podIP": "10.1.1.1", "limits.cpu": "2", "metadata.uid": "1f", "metadata.name": pod.Name, "metadata.labels['a']": "", "spec.nodeName": "node"},
		files:    map[string]string{"scratch/env:KEY": "of a $(PASSWORD) file $$"},
	}
	static := parent
	static.objects = Objects{}
	snap, err := Take(pod, o, config)
	if err != nil {
		assert.NotContains(t, err.Error(), "S3CR3T")
		return nil, err
	}
	paths := map[string]string{}
	mounts := map[string]string{"/lock/web.lock": filepath.Join(t.TempDir(), "web.lock")}
	for _, v := range snap.Volumes {
		dir := t.TempDir()
		paths[v.Name], mounts[envMount] = dir, dir
		for _, f := range v.Files {
			require.EqualValues(t, 0o444, f.Mode)
			require.NoError(t, os.WriteFile(filepath.Join(dir, f.Path), f.Data, 0o600))
		}
	}
	manifest, err := Manifest(snap.Pod, activation, "node", 1, paths)
	require.NoError(t, err)
	assert.NotContains(t, string(manifest), "S3CR3T")
	var started v1.Pod
	require.NoError(t, json.Unmarshal(manifest, &started))

	c := &pod.Spec.Containers[0]
	want, err := s.processes(t, parent, c, o.Images[c.Image], mounts)
	require.NoError(t, err, "the parent can't start")
	got, err := s.processes(t, static, &started.Spec.Containers[0], o.Images[c.Image], mounts)
	require.NoError(t, err, "the checkpoint can't start")
	assert.Equal(t, want, got)
	return snap, nil
}

func TestEnvironmentIsTheParents(t *testing.T) {
	s, o := newStage(t), testObjects(t)
	t.Run("of any container", func(t *testing.T) { s.compareAny(t, o) })
	for _, tt := range []struct{ name, container string }{
		{"values of Secrets", `{command: [print, a], env: [{name: P, valueFrom: {secretKeyRef: {name: db, key: PASSWORD}}}, {name: E, valueFrom: {secretKeyRef: {name: db, key: EMPTY}}}]}`},
		{"bytes that are no text", `{command: [print], env: [{name: P, valueFrom: {secretKeyRef: {name: binary, key: raw}}}]}`},
		{"values of ConfigMaps are not expanded", `{command: [print, $(COST), $$(COST), $(NONE), $], env: [{name: COST, valueFrom: {configMapKeyRef: {name: config, key: cost}}}, {name: TWICE, value: "$(COST)$$"}]}`},
		{"all of a ConfigMap, and names that older kubelets refuse", `{command: [print, "$(2nd)$(x.2nd)"], envFrom: [{configMapRef: {name: config}}, {prefix: x., configMapRef: {name: config}}], env: [{name: Y, value: "$(2nd)"}, {name: 3rd, value: "$(HOST)"}]}`},
		{"env before envFrom, later before earlier", `{command: [print], envFrom: [{configMapRef: {name: config}}, {secretRef: {name: other}}, {configMapRef: {name: more}}], env: [{name: PORT, value: "1"}, {name: PASSWORD, value: plain}]}`},
		{"a Secret over a ConfigMap", `{command: [print, $(cm)], envFrom: [{configMapRef: {name: config}}, {secretRef: {name: other}}]}`},
		{"a ConfigMap over a Secret", `{command: [print, $(cm)], envFrom: [{secretRef: {name: other}}, {configMapRef: {name: config}}]}`},
		{"a prefix", `{command: [print, "$(DB_USER)", "$(USER)"], envFrom: [{prefix: DB_, secretRef: {name: db}}, {prefix: C., configMapRef: {name: config}}]}`},
		{"what may be absent is", `{command: [print, "$(A)$(B)$(C)$(D)"], envFrom: [{secretRef: {name: none, optional: true}}, {configMapRef: {name: none, optional: true}}], env: [{name: A, value: before}, {name: A, valueFrom: {secretKeyRef: {name: none, key: x, optional: true}}}, {name: B, valueFrom: {secretKeyRef: {name: db, key: none, optional: true}}}, {name: C, valueFrom: {configMapKeyRef: {name: config, key: none, optional: true}}}, {name: D, valueFrom: {configMapKeyRef: {name: config, key: blob, optional: true}}}]}`},
		{"a text of a Secret", `{command: [print, --url=$(URL), "$$(URL)", $(NONE)], env: [{name: U, valueFrom: {secretKeyRef: {name: db, key: USER}}}, {name: P, valueFrom: {secretKeyRef: {name: db, key: PASSWORD}}}, {name: URL, value: "http://$(U):$(P)@$(H)/$$(P)"}, {name: H, value: late}]}`},
		{"what comes too late is not seen", `{command: [print], env: [{name: A, value: "$(P)"}, {name: P, valueFrom: {secretKeyRef: {name: db, key: PASSWORD}}}, {name: B, value: "$(P)"}, {name: P, value: plain}, {name: C, value: "$(P)"}]}`},
		{"a Secret and what only the kubelet knows", `{command: [print, "$(URL) $(IP) $(P) $(IMAGE) $(HOME)"], env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}, {name: P, valueFrom: {secretKeyRef: {name: db, key: PASSWORD}}}, {name: URL, value: "$(P)@$(IP)/$(CPU) $$(IP) $(IMAGE) $(KUBERNETES_SERVICE_HOST)"}, {name: AGAIN, value: "$(URL)$(URL)"}]}`},
		{"and it is replaced", `{command: [print, "$(URL)"], env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: P, valueFrom: {secretKeyRef: {name: db, key: PASSWORD}}}, {name: URL, value: "$(P)@$(IP)"}, {name: URL, value: plain}]}`},
		{"words that lock-exec expands", `{command: [print, --a], args: ["$(P)", "$$(P)", "$$$(P)", "$(COST)", "$(P", "$", "a$", "$(IMAGE)", "$(KUBERNETES_SERVICE_HOST)", "$(KUBERNETES_NONE)", "$()", "é$é$(NONE"], env: [{name: P, valueFrom: {secretKeyRef: {name: db, key: PASSWORD}}}, {name: COST, valueFrom: {configMapKeyRef: {name: config, key: cost}}}]}`},
		{"a file", `{command: [print, "$(F)"], env: [{name: F, valueFrom: {fileKeyRef: {volumeName: scratch, path: env, key: KEY}}}, {name: G, valueFrom: {fileKeyRef: {volumeName: scratch, path: env, key: NONE, optional: true}}}]}`},
		{"a file and a Secret", `{command: [print, "$(F)$(PASSWORD)$(G)"], envFrom: [{secretRef: {name: db}}], env: [{name: F, valueFrom: {fileKeyRef: {volumeName: scratch, path: env, key: KEY}}}, {name: BOTH, value: "$(F)$(PASSWORD)"}]}`},
		{"entrypoint", `{image: "entry:1", envFrom: [{secretRef: {name: db}}]}`},
		{"entrypoint with args", `{image: "entry:1", args: ["$(USER)", b], envFrom: [{secretRef: {name: db}}]}`},
		{"no entrypoint", `{image: "cmd:1", envFrom: [{secretRef: {name: db}}]}`},
		{"no entrypoint, but args", `{image: "cmd:1", args: [print, "$(USER)"], envFrom: [{secretRef: {name: db}}]}`},
		{"command without the image's", `{image: "entry:1", command: [print], envFrom: [{secretRef: {name: db}}]}`},
		{"hooks are not expanded, probes are from the pod alone", `{command: [print], envFrom: [{secretRef: {name: db}}, {configMapRef: {name: config}}], env: [{name: A, value: "$$x$(B)"}, {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: MINE, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: C, valueFrom: {configMapKeyRef: {name: config, key: cost}}}, {name: S, value: "$(PASSWORD)$(IP)"}],
			livenessProbe: {exec: {command: [print, "$(A)", "$(C)", "$(PASSWORD)", "$(HOST)", "$(IP)", "$(MINE)", "$(S)", "$$", "$HOME"]}},
			startupProbe: {exec: {command: [print, "$(none)"]}},
			lifecycle: {postStart: {exec: {command: [print, "$(A)", "$$", "$(PASSWORD)"]}}, preStop: {exec: {command: [print]}}}}`},
		{"probes without a Secret", `{command: [print], envFrom: [{configMapRef: {name: more}}], env: [{name: MINE, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: C, valueFrom: {configMapKeyRef: {name: config, key: cost}}}], livenessProbe: {exec: {command: [print, "$(C)$(HOST)$(MINE)"]}}}`},
		{"a lock", `{command: [lock-exec, --lock, /lock/web.lock, --, print, "--p=$(P)"], args: ["$(P)", b], env: [{name: P, valueFrom: {secretKeyRef: {name: db, key: PASSWORD}}}], volumeMounts: [{name: lock, mountPath: /lock}],
			livenessProbe: {exec: {command: [lock-exec, check, --live, --lock, /lock/web.lock, --, exec, print]}},
			readinessProbe: {exec: {command: [lock-exec, check, --ready, --lock, /lock/web.lock, --, https, "https://127.0.0.1:6443/readyz"]}}}`},
		{"a lock by our own lock-exec", `{command: [/opt/pod-checkpointer/bin/lock-exec, -lock=/lock/web.lock, print, a], env: [{name: P, valueFrom: {secretKeyRef: {name: db, key: PASSWORD}}}], volumeMounts: [{name: lock, mountPath: /lock}, {name: bin, mountPath: /opt/pod-checkpointer/bin}],
			lifecycle: {preStop: {exec: {command: [print]}}}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := envPod(t, tt.container)
			_, err := s.compare(t, pod, o)
			require.NoError(t, err)
		})
	}
}

func TestEnvironmentRefused(t *testing.T) {
	const c = "spec.containers[0]"
	for _, tt := range []struct{ name, container, reason, field string }{
		{"no Secret", `{command: [a], env: [{name: A, valueFrom: {secretKeyRef: {name: x, key: k}}}]}`, MissingSecret, c + ".env[0].valueFrom.secretKeyRef.name"},
		{"no key", `{command: [a], env: [{name: A, valueFrom: {secretKeyRef: {name: db, key: k}}}]}`, MissingSecret, c + ".env[0].valueFrom.secretKeyRef.key"},
		{"no ConfigMap", `{envFrom: [{configMapRef: {name: x}}]}`, MissingConfigMap, c + ".envFrom[0].configMapRef.name"},
		{"binary data is no environment", `{env: [{name: A, valueFrom: {configMapKeyRef: {name: config, key: blob}}}]}`, MissingConfigMap, c + ".env[0].valueFrom.configMapKeyRef.key"},
		{"all of nothing", `{envFrom: [{prefix: A}]}`, Unsupported, c + ".envFrom[0]"},
		{"value and source", `{env: [{name: A, value: a, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}]}`, Unsupported, c + ".env[0].valueFrom"},
		{"file of no emptyDir", `{env: [{name: A, valueFrom: {fileKeyRef: {volumeName: lock, path: a, key: a}}}]}`, Unsupported, c + ".env[0].valueFrom.fileKeyRef.volumeName"},
		{"unknown image", `{envFrom: [{secretRef: {name: db}}]}`, Unsupported, c + ".command"},
		{"image without a program", `{image: "none:1", envFrom: [{secretRef: {name: db}}]}`, Unsupported, c + ".command"},
		{"program of a Secret", `{command: ["$(USER)"], envFrom: [{secretRef: {name: db}}]}`, Unsupported, c + ".command[0]"},
		{"program of a Secret in args", `{image: "cmd:1", args: ["$(USER)"], envFrom: [{secretRef: {name: db}}]}`, Unsupported, c + ".args[0]"},
		{"lock of a Secret", `{command: [lock-exec, --env-dir, "$(USER)", --, a], envFrom: [{secretRef: {name: db}}]}`, Unsupported, c + ".command[2]"},
		{"arguments of two environments", `{command: [lock-exec, --env-dir, /x, --, a, "$(USER)"], envFrom: [{secretRef: {name: db}}]}`, Unsupported, c + ".command"},
		{"path of a Secret", `{command: [a], envFrom: [{secretRef: {name: db}}], volumeMounts: [{name: scratch, mountPath: /a, subPathExpr: "$(USER)"}]}`, Unsupported, c + ".volumeMounts[0].subPathExpr"},
		{"our mount is taken", `{command: [a], envFrom: [{secretRef: {name: db}}], volumeMounts: [{name: scratch, mountPath: /pod-checkpointer/x}]}`, Unsupported, c + ".volumeMounts[0].mountPath"},
		{"two values of one name", `{command: [a], env: [{name: IP, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}, {name: P, valueFrom: {secretKeyRef: {name: db, key: USER}}}, {name: URL, value: "$(P)$(IP)"}, {name: P, value: x}]}`, Unsupported, c + ".env[2].value"},
		{"name is no file", `{command: [a], envFrom: [{prefix: a/, secretRef: {name: db}}]}`, UnsafePath, c + ".envFrom[0]"},
		{"name leads out", `{command: [a], env: [{name: .., valueFrom: {secretKeyRef: {name: db, key: USER}}}]}`, UnsafePath, c + ".env[0]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Take(envPod(t, tt.container), testObjects(t), config)
			u := unprotectable(t, err)
			assert.Equal(t, tt.reason, u.Reason, err)
			assert.Equal(t, tt.field, u.Field, err)
			assert.NotContains(t, err.Error(), "S3CR3T")
		})
	}
}

// compareAny compares containers that nobody would write.
func (s stage) compareAny(t *testing.T, o Objects) {
	r, taken := rand.New(rand.NewSource(1)), 0
	for n := range 200 {
		c := anyContainer(r)
		text, err := yaml.Marshal(c)
		require.NoError(t, err)
		if _, err := s.compare(t, envPod(t, string(text)), o); err == nil {
			taken++
		}
		if t.Failed() {
			t.Fatalf("container %d:\n%s", n, text)
		}
	}
	t.Logf("%d taken", taken)
	require.Greater(t, taken, 100)
}

func anyContainer(r *rand.Rand) v1.Container {
	names := []string{"A", "B", "C", "USER", "PASSWORD", "HOST", "cost", "1st", "KUBERNETES_SERVICE_HOST", "IMAGE"}
	name := func() string { return names[r.Intn(len(names))] }
	text := func() string {
		var b strings.Builder
		for range r.Intn(5) {
			b.WriteString([]string{"$(" + name() + ")", "$(" + name() + ")", "$(" + name() + ")", "$$", "$", "$(", ")", "x"}[r.Intn(8)])
		}
		return b.String()
	}
	maybe := func() *bool {
		return []*bool{nil, new(true), new(true)}[r.Intn(3)]
	}
	c := v1.Container{Name: "web", Image: []string{"web:1", "entry:1", "cmd:1", "empty:1"}[r.Intn(4)]}
	for range r.Intn(3) {
		from := v1.EnvFromSource{Prefix: []string{"", "", "P_"}[r.Intn(3)]}
		if r.Intn(2) == 0 {
			from.SecretRef = &v1.SecretEnvSource{Optional: maybe()}
			from.SecretRef.Name = []string{"db", "other", "none"}[r.Intn(3)]
		} else {
			from.ConfigMapRef = &v1.ConfigMapEnvSource{Optional: maybe()}
			from.ConfigMapRef.Name = []string{"config", "more", "none"}[r.Intn(3)]
		}
		c.EnvFrom = append(c.EnvFrom, from)
	}
	for range r.Intn(6) {
		e := v1.EnvVar{Name: name()}
		switch r.Intn(6) {
		case 0:
			e.ValueFrom = &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: []string{"USER", "PASSWORD"}[r.Intn(2)], Optional: maybe()}}
			e.ValueFrom.SecretKeyRef.Name = []string{"db", "other"}[r.Intn(2)]
		case 1:
			e.ValueFrom = &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{Key: []string{"HOST", "cost"}[r.Intn(2)], Optional: maybe()}}
			e.ValueFrom.ConfigMapKeyRef.Name = []string{"config", "more"}[r.Intn(2)]
		case 2:
			e.ValueFrom = &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: []string{"status.podIP", "metadata.name", "metadata.uid"}[r.Intn(3)]}}
		default:
			e.Value = text()
		}
		c.Env = append(c.Env, e)
	}
	if r.Intn(3) > 0 {
		c.Command = []string{printing}
	} else if c.Image != "entry:1" {
		c.Args = []string{printing}
	}
	for range r.Intn(4) {
		c.Args = append(c.Args, text())
	}
	c.LivenessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{printing, text(), text()}}}}
	c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{printing, text()}}}}
	return c
}

func TestImageRefs(t *testing.T) {
	for image, container := range map[string]string{
		"a": `{image: a, envFrom: [{secretRef: {name: db}}]}`,
		"b": `{image: b, args: [x], env: [{name: A, valueFrom: {secretKeyRef: {name: db, key: USER}}}]}`,
		"c": `{image: c, env: [{name: 1st, value: a}]}`,
		"":  `{image: d, command: [x], envFrom: [{secretRef: {name: db}}]}`,
		" ": `{image: e, envFrom: [{configMapRef: {name: config}}]}`,
	} {
		refs := ImageRefs(envPod(t, container))
		assert.Equal(t, strings.TrimSpace(image), strings.Join(refs, " "), fmt.Sprint(container))
	}
}
