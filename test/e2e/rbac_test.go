//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

const (
	base       = "../../manifests/base/"
	daemonUser = "system:serviceaccount:kube-system:pod-checkpointer"
	// anyUser has what every service account of the namespace has: there is no such one.
	anyUser = "system:serviceaccount:kube-system:any"
)

// TestLeastRBAC: what rbac.yaml grants the daemon is what it asks for, no less and no
// more, and the API server grants it nothing beside that but what everybody has.
func TestLeastRBAC(t *testing.T) {
	s := begin(t)
	granted := s.grants(base + "rbac.yaml")
	allowed := slices.Concat(granted, s.grants("testdata/corpus/objects.yaml")) // which the corpus had for itself

	// The control plane mounts no ConfigMap. Of a pod that can't be protected nothing stays.
	reader := pausing("reader")
	pod := &reader.Spec.Template.Spec
	pod.Containers[0].Command = []string{"/pause"}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "ca", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}},
	}})
	s.Cleanup(func() {
		_, _ = s.lab.Kubectl(cluster.ctx, "delete", "daemonset", "--namespace=kube-system", "reader", "--ignore-not-found")
	})
	s.applySet(reader)

	// A daemon that begins to lead does all over, this file among it.
	require.NoError(s, os.RemoveAll(s.path("/var/lib/pod-checkpointer/kubeconfig")))
	leader := strings.TrimPrefix(s.eyes.sight().status.Leader, "kube-system/")
	s.kubectl("delete", "pod", "--namespace=kube-system", leader)
	s.await(2*soon, "every permission to be used", func(sight) bool { return len(s.unused(granted)) == 0 })
	s.timeline.add(time.Now(), "each of %d permissions was used", len(granted))

	requests := s.requests()
	require.NotEmpty(s, requests)
	for _, r := range requests {
		require.True(s, slices.ContainsFunc(allowed, func(g grant) bool { return g.allows(r) }), "a request that no rule allows: %+v", r)
		// Other scenarios take permissions away.
		require.False(s, r.At.After(s.begun) && r.Code == http.StatusForbidden, "forbidden: %+v", r)
	}

	for namespace := range strings.FieldsSeq(s.kubectl("get", "namespaces", "--output=jsonpath={.items[*].metadata.name}")) {
		var want []string
		for _, g := range granted {
			if g.namespace == "" || g.namespace == namespace {
				want = append(want, g.rule())
			}
		}
		has, all := s.rules(daemonUser, namespace), s.rules(anyUser, namespace)
		maps.DeleteFunc(has, func(rule string, _ bool) bool { return all[rule] })
		require.ElementsMatch(s, want, slices.Collect(maps.Keys(has)), "what the daemon may do in %s, and others may not", namespace)
	}
	s.kubectl("delete", "daemonset", "--namespace=kube-system", "reader")
	s.awaitSteady()
}

// grant is one verb on one resource.
type grant struct {
	namespace string // "": all of them
	group     string // of the API
	resource  string // with its subresource
	name      string // "": any
	verb      string
}

// rule is the grant without its namespace.
func (g grant) rule() string { return strings.Join([]string{g.verb, g.group, g.resource, g.name}, " ") }

func (g grant) allows(r lab.Request) bool {
	resource := strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
	return g.verb == r.Verb && g.group == r.Group && g.resource == resource &&
		(g.namespace == "" || g.namespace == r.Namespace) && (g.name == "" || g.name == r.Name)
}

// grantsOf parts a rule into its grants.
func grantsOf(namespace string, groups, resources, names, verbs []string) []grant {
	if len(names) == 0 {
		names = []string{""}
	}
	var out []grant
	for _, group := range groups {
		for _, resource := range resources {
			for _, name := range names {
				for _, verb := range verbs {
					out = append(out, grant{namespace, group, resource, name, verb})
				}
			}
		}
	}
	return out
}

// grants are those of a file.
func (s *scene) grants(file string) []grant {
	s.Helper()
	data, err := os.ReadFile(file)
	require.NoError(s, err)
	var out []grant
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var role rbacv1.Role // or a ClusterRole, whose namespace is empty, or what has no rules
		err := decoder.Decode(&role)
		if errors.Is(err, io.EOF) {
			require.NotEmpty(s, out)
			return out
		}
		require.NoError(s, err)
		for _, r := range role.Rules {
			require.Empty(s, r.NonResourceURLs)
			out = append(out, grantsOf(role.Namespace, r.APIGroups, r.Resources, r.ResourceNames, r.Verbs)...)
		}
	}
}

// unused are the grants that the daemon has not used since this scenario began.
func (s *scene) unused(granted []grant) []grant {
	s.Helper()
	requests := s.requests()
	return slices.DeleteFunc(slices.Clone(granted), func(g grant) bool {
		return slices.ContainsFunc(requests, func(r lab.Request) bool { return r.At.After(s.begun) && g.allows(r) })
	})
}

func (s *scene) requests() []lab.Request {
	s.Helper()
	requests, err := s.lab.Audit()
	require.NoError(s, err)
	return requests
}

// rules are what the API server says that a user may do in a namespace.
func (s *scene) rules(user, namespace string) map[string]bool {
	s.Helper()
	body, err := json.Marshal(map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": map[string]string{"namespace": namespace},
	})
	require.NoError(s, err)
	request, err := http.NewRequestWithContext(cluster.ctx, http.MethodPost, lab.APIURL+"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", bytes.NewReader(body))
	require.NoError(s, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Impersonate-User", user) // with the groups of a service account
	admin, err := s.lab.Admin()
	require.NoError(s, err)
	answer, err := admin.Do(request)
	require.NoError(s, err)
	defer answer.Body.Close()
	var review authorizationv1.SelfSubjectRulesReview
	require.NoError(s, json.NewDecoder(answer.Body).Decode(&review))
	require.Equal(s, http.StatusCreated, answer.StatusCode)
	require.False(s, review.Status.Incomplete, review.Status.EvaluationError)
	out := map[string]bool{}
	for _, r := range review.Status.ResourceRules {
		for _, g := range grantsOf("", r.APIGroups, r.Resources, r.ResourceNames, r.Verbs) {
			out[g.rule()] = true
		}
	}
	for _, r := range review.Status.NonResourceRules {
		for _, g := range grantsOf("", []string{""}, r.NonResourceURLs, nil, r.Verbs) {
			out[g.rule()] = true
		}
	}
	require.NotEmpty(s, out)
	return out
}

// capabilities are the bits of those that the manifest names.
var capabilities = map[corev1.Capability]uint{
	"CHOWN": unix.CAP_CHOWN, "DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "KILL": unix.CAP_KILL, "SYS_PTRACE": unix.CAP_SYS_PTRACE,
}

// TestLeastPrivilege: both copies of the daemon have the capabilities that the
// manifest names, and can get no others; what it mounts read-only, and their root,
// they can't write.
func TestLeastPrivilege(t *testing.T) {
	s := begin(t)
	data, err := os.ReadFile(base + "daemonset.yaml")
	require.NoError(s, err)
	var set appsv1.DaemonSet
	require.NoError(s, utilyaml.UnmarshalStrict(data, &set))
	spec := set.Spec.Template.Spec
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		require.Nil(s, c.SecurityContext.Privileged, c.Name)
		require.Equal(s, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, c.Name)
	}
	daemon := spec.Containers[0]
	var mask uint64
	for _, name := range daemon.SecurityContext.Capabilities.Add {
		require.Contains(s, capabilities, name)
		mask |= 1 << capabilities[name]
	}
	readOnly := map[string]bool{"/": true}
	for _, mount := range daemon.VolumeMounts {
		readOnly[mount.MountPath] = mount.ReadOnly
	}

	copies := 0
	for _, pod := range s.eyes.sight().pods {
		if !strings.HasPrefix(pod.Name, "pod-checkpointer-") || !anyRuns(pod) {
			continue
		}
		for _, pid := range processesOf(pod.UID) {
			line, _ := os.ReadFile(path.Join("/proc", pid, "cmdline"))
			if !strings.HasPrefix(string(line), "pod-checkpointer\x00run\x00") {
				continue // of the sandbox, or a probe
			}
			copies++
			status := s.statusOf(pid)
			for _, field := range []string{"CapEff", "CapPrm", "CapBnd"} {
				require.Equal(s, mask, status[field], "%s of %s", field, pod.Name)
			}
			for _, field := range []string{"CapInh", "CapAmb"} {
				require.Zero(s, status[field], "%s of %s", field, pod.Name)
			}
			require.EqualValues(s, 1, status["NoNewPrivs"], pod.Name)
			mounts := s.readOnlyMounts(pid)
			for path, want := range readOnly {
				require.Contains(s, mounts, path, pod.Name)
				require.Equal(s, want, mounts[path], "%s of %s is mounted read-only", path, pod.Name)
			}
		}
	}
	require.Equal(s, 2, copies, "the pod of the DaemonSet, and its static copy")
}

// statusOf are the fields of a process's status that are one hexadecimal number.
func (s *scene) statusOf(pid string) map[string]uint64 {
	s.Helper()
	text, err := os.ReadFile(path.Join("/proc", pid, "status"))
	require.NoError(s, err)
	out := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if number, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64); err == nil {
			out[name] = number
		}
	}
	return out
}

// readOnlyMounts tells of each mount point of a process whether it is read-only.
func (s *scene) readOnlyMounts(pid string) map[string]bool {
	s.Helper()
	text, err := os.ReadFile(path.Join("/proc", pid, "mountinfo"))
	require.NoError(s, err)
	out := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		require.Greater(s, len(words), 5, fmt.Sprintf("%q", line))
		out[words[4]] = slices.Contains(strings.Split(words[5], ","), "ro")
	}
	return out
}
