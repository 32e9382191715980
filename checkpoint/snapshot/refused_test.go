package snapshot

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// guarded is a pod with a lock, as small as one may be.
const guarded = `
metadata:
  name: web-x7k2p
  namespace: kube-system
  annotations: {pod-checkpointer.io/checkpoint: "true", pod-checkpointer.io/lock: web}
  ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: web, uid: 1f, controller: true}]
spec:
  hostNetwork: true
  containers:
  - name: web
    image: web:1
    command: [lock-exec, --lock, /lock/web.lock, --, web]
    ports: [{name: web, containerPort: 80}]
    readinessProbe: {exec: {command: [lock-exec, check, --ready, --lock, /lock/web.lock, --, tcp, "127.0.0.1:80"]}}
    volumeMounts: [{name: lock, mountPath: /lock}, {name: tmp, mountPath: /scratch}]
  volumes:
  - {name: lock, hostPath: {path: /run/lock/pod-checkpointer}}
  - {name: tmp, emptyDir: {}}
`

func guardedPod(t testing.TB) *v1.Pod {
	t.Helper()
	var pod v1.Pod
	require.NoError(t, yaml.UnmarshalStrict([]byte(guarded), &pod))
	return &pod
}

func annotate(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations[key] = value }
}

func command(words ...string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Command = words }
}

func readiness(h v1.ProbeHandler) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].ReadinessProbe.ProbeHandler = h }
}

func asks(words ...string) func(*v1.Pod) {
	return readiness(v1.ProbeHandler{Exec: &v1.ExecAction{Command: append([]string{"lock-exec", "check"}, words...)}})
}

func lockless(then func(*v1.Pod)) func(*v1.Pod) {
	return func(p *v1.Pod) {
		delete(p.Annotations, AnnotationLock)
		p.Spec.Containers[0].Command, p.Spec.Containers[0].ReadinessProbe = []string{"web"}, nil
		then(p)
	}
}

func env(source v1.EnvVarSource) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A", ValueFrom: &source}} }
}

func secret(s v1.SecretVolumeSource) func(*v1.Pod) {
	s.SecretName = "cert"
	return func(p *v1.Pod) { p.Spec.Volumes[1].VolumeSource = v1.VolumeSource{Secret: &s} }
}

func downward(items ...v1.DownwardAPIVolumeFile) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Volumes[1].VolumeSource = v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: items}}
	}
}

func projected(sources ...v1.VolumeProjection) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Volumes[1].VolumeSource = v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}}
	}
}

func TestRefused(t *testing.T) {
	const (
		lockCommand = "spec.containers[0].command"
		ready       = "spec.containers[0].readinessProbe"
		readyCheck  = ready + ".exec.command"
		items       = "spec.volumes[1].secret.items[0]"
		down        = "spec.volumes[1].downwardAPI.items[0]"
		sources     = "spec.volumes[1].projected.sources[0]"
		source      = "spec.containers[0].env[0].valueFrom"
	)
	field := func(path string) v1.EnvVarSource {
		return v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}
	}
	for _, tt := range []struct {
		name          string
		change        func(*v1.Pod)
		reason, field string
	}{
		{"value of checkpoint", annotate(AnnotationCheckpoint, "yes"), BadAnnotation, "metadata.annotations[pod-checkpointer.io/checkpoint]"},
		{"misspelt", annotate(Prefix+"handof-grace", "1"), BadAnnotation, "metadata.annotations[pod-checkpointer.io/handof-grace]"},
		{"standby", annotate(Prefix+"standby", "hot"), BadAnnotation, "metadata.annotations[pod-checkpointer.io/standby]"},
		{"after nothing", annotate(AnnotationAfter, ""), BadAnnotation, "metadata.annotations[pod-checkpointer.io/after]"},
		{"after one and nothing", annotate(AnnotationAfter, "etcd,"), BadAnnotation, "metadata.annotations[pod-checkpointer.io/after]"},
		{"after a path", annotate(AnnotationAfter, "../etcd"), BadAnnotation, "metadata.annotations[pod-checkpointer.io/after]"},
		{"after a workload of too many parts", annotate(AnnotationAfter, "apps/kube-system/etcd"), BadAnnotation, "metadata.annotations[pod-checkpointer.io/after]"},
		{"after two without a comma", annotate(AnnotationAfter, "etcd kube-apiserver"), BadAnnotation, "metadata.annotations[pod-checkpointer.io/after]"},
		{"fallback", annotate(Prefix+"fallback", "never"), BadAnnotation, "metadata.annotations[pod-checkpointer.io/fallback]"},
		{"data", annotate(Prefix+"data", "/var/lib/etcd"), BadAnnotation, "metadata.annotations[pod-checkpointer.io/data]"},
		{"lock is a path", annotate(AnnotationLock, "../web"), BadAnnotation, "metadata.annotations[pod-checkpointer.io/lock]"},
		{"lock without a name", annotate(AnnotationLock, ""), BadAnnotation, "metadata.annotations[pod-checkpointer.io/lock]"},
		{"grace below 0", annotate(AnnotationHandoffGrace, "-1s"), BadAnnotation, "metadata.annotations[pod-checkpointer.io/handoff-grace]"},
		{"grace is a word", annotate(AnnotationHandoffGrace, "soon"), BadAnnotation, "metadata.annotations[pod-checkpointer.io/handoff-grace]"},
		{"a checkpoint", annotate(AnnotationCheckpointOf, "a/b"), AlreadyCheckpoint, "metadata.annotations[pod-checkpointer.io/checkpoint-of]"},
		{"static", annotate("kubernetes.io/config.mirror", "1f"), Unsupported, "metadata.annotations[kubernetes.io/config.mirror]"},
		{"of a Job", func(p *v1.Pod) { p.OwnerReferences[0].Kind = "Job" }, Unsupported, "metadata.ownerReferences"},
		{"of a Node", func(p *v1.Pod) { p.OwnerReferences[0].Kind = "Node" }, Unsupported, "metadata.ownerReferences"},
		{"namespace leads out", func(p *v1.Pod) { p.Namespace = "../etc" }, Unsupported, "metadata.namespace"},
		{"workload leads out", func(p *v1.Pod) { p.OwnerReferences[0].Name = "../etc" }, Unsupported, "metadata.name"},

		{"no lock taken", command("web"), LockMismatch, "spec.containers"},
		{"a shell takes it", command("sh", "-c", "lock-exec --lock /lock/web.lock -- web"), LockMismatch, "spec.containers"},
		{"flag of the program", command("lock-exec", "--env-dir", "/env", "--", "web", "--lock", "/lock/web.lock"), LockMismatch, "spec.containers"},
		{"flag behind the program", command("lock-exec", "web", "--lock", "/lock/web.lock"), LockMismatch, "spec.containers"},
		{"two locks", command("lock-exec", "--lock", "/lock/web.lock", "-lock=/lock/other.lock", "--", "web"), LockMismatch, lockCommand},
		{"no program", command("lock-exec", "--lock", "/lock/web.lock", "--"), LockMismatch, lockCommand},
		{"another lock", command("lock-exec", "--lock", "/lock/other.lock", "--", "web"), LockMismatch, lockCommand},
		{"lock in no volume", command("lock-exec", "--lock", "/elsewhere/web.lock", "--", "web"), LockMismatch, lockCommand},
		{"lock beside the volume", command("lock-exec", "--lock", "/lockweb.lock", "--", "web"), LockMismatch, lockCommand},
		{"lock leads out", command("lock-exec", "--lock", "/lock/../web.lock", "--", "web"), LockMismatch, lockCommand},
		{"lock in an emptyDir", command("lock-exec", "--lock", "/scratch/web.lock", "--", "web"), LockMismatch, lockCommand},
		{"lock of a variable", command("lock-exec", "--lock", "/lock/$(NAME).lock", "--", "web"), LockMismatch, lockCommand},
		{"lock below a subPathExpr", func(p *v1.Pod) { p.Spec.Containers[0].VolumeMounts[0].SubPathExpr = "$(A)" }, LockMismatch, lockCommand},
		{"lock in a nested mount", func(p *v1.Pod) {
			p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "tmp", MountPath: "/lock/web.lock"})
		}, LockMismatch, lockCommand},
		{"two containers take it", func(p *v1.Pod) { p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0]) }, LockMismatch, "spec.containers[1].command"},
		{"an init container takes it", func(p *v1.Pod) {
			p.Spec.InitContainers = p.Spec.Containers
			p.Spec.Containers = []v1.Container{{Name: "a", Image: "a"}}
		}, LockMismatch, "spec.initContainers[0].command"},
		{"lock without annotation", func(p *v1.Pod) { delete(p.Annotations, AnnotationLock) }, LockMismatch, lockCommand},
		{"lock with one dash without annotation", lockless(command("/bin/lock-exec", "-lock=/lock/web.lock", "web")), LockMismatch, lockCommand},
		{"API server without lock", lockless(command("/usr/bin/kube-apiserver")), NeedsLock, lockCommand},
		{"API server in a shell", lockless(command("sh", "-c", "exec kube-apiserver --v=2")), NeedsLock, lockCommand},
		{"API server in the arguments of a shell", lockless(func(p *v1.Pod) {
			p.Spec.Containers[0].Command, p.Spec.Containers[0].Args = []string{"sh", "-c"}, []string{"(exec kube-apiserver)"}
		}), NeedsLock, lockCommand},
		{"API server of an image", lockless(func(p *v1.Pod) {
			p.Spec.Containers[0].Command, p.Spec.Containers[0].Image = nil, "registry.k8s.io/kube-apiserver:v1.37.2"
		}), NeedsLock, lockCommand},

		{"readiness of another lock", asks("--ready", "--lock", "/lock/other.lock", "--", "tcp", "127.0.0.1:80"), LockMismatch, readyCheck},
		{"readiness of no lock", asks("--ready", "--", "tcp", "127.0.0.1:80"), LockMismatch, readyCheck},
		{"readiness is liveness", asks("--live", "--lock", "/lock/web.lock", "--", "tcp", "127.0.0.1:80"), Unsupported, readyCheck},
		{"liveness is readiness", func(p *v1.Pod) { p.Spec.Containers[0].LivenessProbe = p.Spec.Containers[0].ReadinessProbe }, Unsupported, "spec.containers[0].livenessProbe.exec.command"},
		{"readiness runs a program", asks("--ready", "--lock", "/lock/web.lock", "--", "exec", "true"), Unsupported, readyCheck},
		{"readiness of a variable", asks("--ready", "--lock", "/lock/web.lock", "--", "https", "https://$(IP)/"), Unsupported, readyCheck},
		{"readiness of nothing", asks("--ready", "--lock", "/lock/web.lock", "--", "tcp"), Unsupported, readyCheck},
		{"readiness with wrong URL", asks("--ready", "--lock", "/lock/web.lock", "--", "https", "http://127.0.0.1/"), Unsupported, readyCheck},
		{"readiness by exec", readiness(v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}), Unsupported, readyCheck},
		{"readiness by grpc", readiness(v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 80}}), Unsupported, ready},
		{"readiness by nothing", readiness(v1.ProbeHandler{}), Unsupported, ready},
		{"readiness with headers", readiness(v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(80), HTTPHeaders: []v1.HTTPHeader{{Name: "A"}}}}), Unsupported, ready + ".httpGet.httpHeaders"},
		{"readiness with a protocol", readiness(v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(80), Protocol: new(v1.HTTPProtocol)}}), Unsupported, ready + ".httpGet.protocol"},
		{"readiness that would expand", readiness(v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(80), Path: "/$(A)"}}), Unsupported, ready},
		{"readiness of no such port", readiness(v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromString("x")}}), Unsupported, ready + ".tcpSocket.port"},
		{"readiness of port 0", readiness(v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{}}), Unsupported, ready + ".httpGet.port"},
		{"readiness with a password", asks("--lock", "/lock/web.lock", "--", "http", "http://a:b@127.0.0.1/"), Unsupported, readyCheck},
		{"start is readiness", func(p *v1.Pod) { p.Spec.Containers[0].StartupProbe = p.Spec.Containers[0].ReadinessProbe }, Unsupported, "spec.containers[0].startupProbe.exec.command"},
		{"readiness in a network of its own", func(p *v1.Pod) { p.Spec.HostNetwork = false }, Unsupported, "spec.hostNetwork"},
		{"check sees the host's processes", func(p *v1.Pod) { p.Spec.HostPID = true }, Unsupported, "spec.hostPID"},
		{"check sees the pod's processes", func(p *v1.Pod) { p.Spec.ShareProcessNamespace = new(true) }, Unsupported, "spec.shareProcessNamespace"},

		{"hook to no such port", func(p *v1.Pod) {
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromString("x")}}}
		}, Unsupported, "spec.containers[0].lifecycle.preStop.httpGet.port"},
		{"host port of a pod network", lockless(func(p *v1.Pod) {
			p.Spec.HostNetwork, p.Spec.Containers[0].Ports[0].HostPort = false, 80
		}), Unsupported, "spec.containers[0].ports[0].hostPort"},
		{"a device", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/gpu": resource.MustParse("1")}
		}, Unsupported, "spec.containers[0].resources.limits[example.com/gpu]"},

		{"env of nothing", env(v1.EnvVarSource{}), Unsupported, source},
		{"env of an address not yet known", env(field("status.hostIP")), Unsupported, source + ".fieldRef.fieldPath"},
		{"env of all labels", env(field("metadata.labels")), Unsupported, source + ".fieldRef.fieldPath"},
		{"env of no resource", env(v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.pods"}}), Unsupported, source + ".resourceFieldRef.resource"},
		{"env of neither limits nor requests", env(v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "cpu"}}), Unsupported, source + ".resourceFieldRef.resource"},
		{"env of no container", env(v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.cpu", ContainerName: "x"}}), Unsupported, source + ".resourceFieldRef.containerName"},
		{"file of an address", downward(v1.DownwardAPIVolumeFile{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}), Unsupported, down + ".fieldRef.fieldPath"},
		{"file of half a label", downward(v1.DownwardAPIVolumeFile{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels['a"}}), Unsupported, down + ".fieldRef.fieldPath"},
		{"file of nothing", downward(v1.DownwardAPIVolumeFile{}), Unsupported, down},
		{"file of no container", downward(v1.DownwardAPIVolumeFile{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.cpu"}}), Unsupported, down + ".resourceFieldRef.containerName"},
		{"file of no resource", downward(v1.DownwardAPIVolumeFile{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "requests.pods", ContainerName: "web"}}), Unsupported, down + ".resourceFieldRef.resource"},
		{"file beside labels of what the node has", downward(
			v1.DownwardAPIVolumeFile{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.memory", ContainerName: "web"}, Path: "a"},
			v1.DownwardAPIVolumeFile{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}, Path: "b"}), Unsupported, down + ".resourceFieldRef.resource"},
		{"token of no account", projected(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "a"}}), MissingToken, sources + ".serviceAccountToken"},
		{"token that leads out", projected(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Audience: "b", Path: "../a"}}), UnsafePath, sources + ".serviceAccountToken.path"},
		{"token beside half an address", func(p *v1.Pod) {
			projected(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Audience: "b", Path: "a"}})(p)
			p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "a"}}
		}, Unsupported, "spec.containers[0].env"},
		{"Secret among sources", projected(v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "x"}}}), MissingSecret, sources + ".secret.name"},
		{"ConfigMap among sources", projected(v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "x"}}}), MissingConfigMap, sources + ".configMap.name"},
		{"trust bundle", projected(v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "a"}}), Unsupported, sources + ".clusterTrustBundle"},
		{"certificate", projected(v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{KeyPath: "a"}}), Unsupported, sources + ".podCertificate"},
		{"source of nothing", projected(v1.VolumeProjection{}), Unsupported, sources},
		{"two sources in one", projected(v1.VolumeProjection{Secret: &v1.SecretProjection{}, ConfigMap: &v1.ConfigMapProjection{}}), Unsupported, sources},
		{"two volumes in one", func(p *v1.Pod) { p.Spec.Volumes[1].HostPath = &v1.HostPathVolumeSource{Path: "/a"} }, Unsupported, "spec.volumes[1]"},

		{"no such Secret", func(p *v1.Pod) { secret(v1.SecretVolumeSource{})(p); p.Spec.Volumes[1].Secret.SecretName = "x" }, MissingSecret, "spec.volumes[1].secret.secretName"},
		{"no such ConfigMap", func(p *v1.Pod) {
			p.Spec.Volumes[1].VolumeSource = v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}
		}, MissingConfigMap, "spec.volumes[1].configMap.name"},
		{"no such key", secret(v1.SecretVolumeSource{Items: []v1.KeyToPath{{Key: "x", Path: "x"}}}), MissingSecret, items + ".key"},
		{"path leads out", secret(v1.SecretVolumeSource{Items: []v1.KeyToPath{{Key: "a", Path: "x/../../y"}}}), UnsafePath, items + ".path"},
		{"path is the volume", secret(v1.SecretVolumeSource{Items: []v1.KeyToPath{{Key: "a", Path: "./."}}}), UnsafePath, items + ".path"},
		{"path is absolute", secret(v1.SecretVolumeSource{Items: []v1.KeyToPath{{Key: "a", Path: "/etc/passwd"}}}), UnsafePath, items + ".path"},
		{"path is the kubelet's", secret(v1.SecretVolumeSource{Items: []v1.KeyToPath{{Key: "a", Path: "./..data/x"}}}), UnsafePath, items + ".path"},
		{"path has a zero byte", secret(v1.SecretVolumeSource{Items: []v1.KeyToPath{{Key: "a", Path: "a\x00b"}}}), UnsafePath, items + ".path"},
		{"path is too long", secret(v1.SecretVolumeSource{Items: []v1.KeyToPath{{Key: "a", Path: strings.Repeat("a", 256)}}}), UnsafePath, items + ".path"},
		{"file is a directory", secret(v1.SecretVolumeSource{Items: []v1.KeyToPath{{Key: "a", Path: "x/y"}, {Key: "a", Path: "x"}}}), UnsafePath, "spec.volumes[1]"},
		{"owner of a file", secret(v1.SecretVolumeSource{Items: []v1.KeyToPath{{Key: "a", Path: "a", User: new(int64(-1))}}}), Unsupported, "spec.volumes[1]"},
		{"group of files", func(p *v1.Pod) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(-1))}
		}, Unsupported, "spec.securityContext.fsGroup"},
		{"two volumes of one name", func(p *v1.Pod) { p.Spec.Volumes[1].Name = "lock" }, Unsupported, "spec.volumes[1].name"},
		{"mount of no volume", func(p *v1.Pod) { p.Spec.Containers[0].VolumeMounts[1].Name = "a" }, Unsupported, "spec.containers[0].volumeMounts[1].name"},
		{"iSCSI", func(p *v1.Pod) {
			p.Spec.Volumes[1].VolumeSource = v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{}}
		}, Unsupported, "spec.volumes[1].iscsi"},
		{"image without a name", func(p *v1.Pod) {
			p.Spec.Volumes[1].VolumeSource = v1.VolumeSource{Image: &v1.ImageVolumeSource{}}
		}, Unsupported, "spec.volumes[1].image.reference"},
		{"volume without source", func(p *v1.Pod) { p.Spec.Volumes[1].VolumeSource = v1.VolumeSource{} }, Unsupported, "spec.volumes[1]"},
		{"hostPath without path", func(p *v1.Pod) { p.Spec.Volumes[0].HostPath.Path = "" }, Unsupported, "spec.volumes[0].hostPath.path"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := guardedPod(t)
			tt.change(pod)
			objects := Objects{
				Secrets: map[string]*v1.Secret{"cert": {Data: map[string][]byte{"a": []byte("hush")}}},
				Tokens:  map[TokenRef]string{{"default", "b"}: "hush"},
			}
			_, err := Take(pod, objects, config)
			u := unprotectable(t, err)
			assert.Equal(t, tt.reason, u.Reason, err)
			assert.Equal(t, tt.field, u.Field, err)
			assert.NotContains(t, err.Error(), "hush")
		})
	}
}

// A Secret that someone wrote past the API server's own checks.
func TestKeyThatLeadsOutIsRefused(t *testing.T) {
	for _, key := range []string{"../x", "..", ".", "/x", "", "..data"} {
		pod := guardedPod(t)
		secret(v1.SecretVolumeSource{})(pod)
		_, err := Take(pod, Objects{Secrets: map[string]*v1.Secret{"cert": {Data: map[string][]byte{key: nil}}}}, config)
		require.Equal(t, UnsafePath, unprotectable(t, err).Reason, key)
	}
}

func TestTokenThatLeadsNowhereIsRefused(t *testing.T) {
	pod := guardedPod(t)
	projected(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "a"}})(pod)
	objects := Objects{Tokens: map[TokenRef]string{{ServiceAccount: "default"}: "hush"}}
	_, err := Take(pod, objects, Config{LockDir: lockDir})
	u := unprotectable(t, err)
	require.Equal(t, MissingEndpoint, u.Reason)
	require.Equal(t, "spec.containers[0].env", u.Field)

	pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "fd00::1"}, {Name: "KUBERNETES_SERVICE_PORT", Value: "6443"}}
	_, err = Take(pod, objects, Config{LockDir: lockDir})
	require.NoError(t, err)

	pod.Spec.Containers[0].Env = nil
	pod.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{Prefix: "KUBERNETES_SERVICE_", SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "api"}}}}
	objects.Secrets = map[string]*v1.Secret{"api": {Data: map[string][]byte{"HOST": []byte("10.0.0.9"), "PORT": []byte("6443")}}}
	s, err := Take(pod, objects, Config{LockDir: lockDir, BinDir: "/opt/bin"})
	require.NoError(t, err, "also where no manifest may say it")
	require.Empty(t, s.Pod.Spec.Containers[0].Env)
}

func TestPodOfAnotherNodeIsAnError(t *testing.T) {
	pod := guardedPod(t)
	pod.Spec.NodeName = "a"
	_, err := Take(pod, Objects{}, Config{LockDir: lockDir, Node: "b"})
	require.ErrorContains(t, err, `pod of node "a", not of "b"`)
	_, err = Take(pod, Objects{}, Config{LockDir: lockDir, Node: "a"})
	require.NoError(t, err)
}
