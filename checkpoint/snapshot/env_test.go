package snapshot

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

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
	all.ConfigMaps["config"].Data["bytes"] = "\xfe" // as no JSON has it
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
		{"Services", `{command: [print, "$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)", "$(ETCD_SERVICE_HOST)"]}`},
		{"Services and a Secret", `{command: [print, "$(URL) $(USER) $(KUBERNETES_SERVICE_HOST)"], envFrom: [{secretRef: {name: db}}], env: [{name: URL, value: "$(USER)@$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)"}]}`},
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
		{"a lock, a Secret and what only the kubelet knows", `{command: [lock-exec, --lock, /lock/web.lock, --, print], env: [{name: ID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}, {name: P, valueFrom: {secretKeyRef: {name: db, key: PASSWORD}}}, {name: URL, value: "$(P)@$(ID) $$(ID)"}], volumeMounts: [{name: lock, mountPath: /lock}]}`},
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
		{"name that not every kubelet takes", `{command: [a], env: [{name: 1st, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}]}`, Unsupported, c + ".env[0].name"},
		{"argument of a Service", `{command: [a], args: [b, "$(KUBERNETES_PORT)"]}`, Unsupported, c + ".args[1]"},
		{"variable of a Service", `{env: [{name: A, value: "x$(KUBERNETES_PORT_443_TCP_ADDR)"}, {name: KUBERNETES_PORT_443_TCP_ADDR, value: late}]}`, Unsupported, c + ".env[0].value"},
		{"path of a Service", `{volumeMounts: [{name: scratch, mountPath: /a, subPathExpr: "$(KUBERNETES_SERVICE_PORT_HTTPS)"}]}`, Unsupported, c + ".volumeMounts[0].subPathExpr"},
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

// A kubelet would fill its memory.
func TestVariablesThatGrowAreRefused(t *testing.T) {
	pod := envPod(t, `{command: [a], envFrom: [{secretRef: {name: db}}]}`)
	c := &pod.Spec.Containers[0]
	c.Env = []v1.EnvVar{{Name: "V0", Value: "$(PASSWORD)"}}
	for i := range 60 {
		c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprintf("V%d", i+1), Value: strings.Repeat(fmt.Sprintf("$(V%d)", i), 2)})
	}
	_, err := Take(pod, testObjects(t), config)
	require.Contains(t, unprotectable(t, err).Help, "above 131071 bytes")

	c.Env = []v1.EnvVar{{Name: "V", Value: strings.Repeat("x", maxText-len("V=\x00"))}}
	_, err = Take(pod, testObjects(t), config)
	require.NoError(t, err, "as long as one may be")
	c.Command[0] = strings.Repeat("$(V)", 3)
	_, err = Take(pod, testObjects(t), config)
	require.Equal(t, "spec.containers[0].command[0]", unprotectable(t, err).Field)
}

func TestNameOfOurVolumeIsTaken(t *testing.T) {
	for _, name := range []string{binVolume, envVolume + "0"} {
		for _, source := range []v1.VolumeSource{
			{Secret: &v1.SecretVolumeSource{SecretName: "db"}},
			{EmptyDir: &v1.EmptyDirVolumeSource{}},
			{HostPath: &v1.HostPathVolumeSource{Path: "/etc"}},
		} {
			pod := envPod(t, `{command: [a], envFrom: [{secretRef: {name: db}}]}`)
			pod.Spec.Volumes[0] = v1.Volume{Name: name, VolumeSource: source}
			_, err := Take(pod, testObjects(t), config)
			require.Equal(t, "spec.volumes[0].name", unprotectable(t, err).Field)
		}
	}
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

func TestOtherServicesAreUnknownAtBoot(t *testing.T) {
	pod := envPod(t, `{command: [a, "$(ETCD_SERVICE_HOST)", "$(ETCD_HOST)"]}`)
	for _, links := range []*bool{nil, new(true)} {
		pod.Spec.EnableServiceLinks = links
		_, err := Take(pod, Objects{}, config)
		require.Equal(t, "spec.containers[0].command[1]", unprotectable(t, err).Field)
	}
	pod.Spec.EnableServiceLinks = new(false)
	_, err := Take(pod, Objects{}, config)
	require.NoError(t, err, "the parent got just this text")
}
