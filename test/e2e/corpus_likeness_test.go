//go:build e2e

package e2e

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// likeness is what of a pod must be the same for parent and checkpoint.
type likeness struct {
	// By volume and path: files as they lie on the node, for whom a volume is filled.
	Volumes map[string]string
	// By container, mount and path: the same as a process of the container sees it.
	Mounts map[string]string
	// By container, sorted: what its process began with.
	Environment, Arguments map[string][]string
	// Of every token that was seen.
	tokens []string
}

// likenesses are those of the protected specimens; pod finds the one to look at.
func (s *scene) likenesses(corpus []specimen, pod func(specimen) (cri.Pod, bool)) map[string]likeness {
	s.Helper()
	processes := containerProcesses()
	out := map[string]likeness{}
	for _, p := range corpus {
		if p.Refused != "" {
			continue
		}
		found, ok := pod(p)
		require.True(s, ok, "the pod of %s", p.Name)
		out[p.Name] = s.likenessOf(p, found, processes)
	}
	return out
}

func (s *scene) likenessOf(p specimen, pod cri.Pod, processes map[string]int) likeness {
	s.Helper()
	l := likeness{Volumes: map[string]string{}, Mounts: map[string]string{}, Environment: map[string][]string{}, Arguments: map[string][]string{}}
	for name, dir := range s.volumesOf(pod) {
		l.tree(l.Volumes, name, dir)
	}
	spec := s.template(p).Spec
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		running, ok := pod.Container(c.Name)
		if !ok || running.State != cri.Running {
			continue // an init container that is done
		}
		proc := filepath.Join("/proc", strconv.Itoa(processes[running.ID]))
		l.Environment[c.Name], l.Arguments[c.Name] = s.startedWith(proc)
		for _, m := range c.VolumeMounts {
			i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
			if v := spec.Volumes[i]; v.Secret != nil || v.ConfigMap != nil || v.Projected != nil || v.DownwardAPI != nil {
				l.tree(l.Mounts, c.Name+":"+m.MountPath, filepath.Join(proc, "root", m.MountPath))
			}
		}
	}
	return l
}

var apiAccess = regexp.MustCompile(`^kube-api-access(-[a-z0-9]{5})?$`)

// volumesOf are the directories of a pod's volumes whose files the kubelet makes of
// what it knows from the API server, or we do: by name. That of the injected token
// gets a new name each time.
func (s *scene) volumesOf(pod cri.Pod) map[string]string {
	s.Helper()
	root := strings.TrimSuffix(s.path("/run"), "/run") // with what is mounted there
	patterns := []string{root + "/var/lib/pod-checkpointer/activations/" + pod.UID + "/*"}
	for _, plugin := range []string{"secret", "configmap", "projected", "downward-api"} {
		patterns = append(patterns, root+"/var/lib/kubelet/pods/"+pod.UID+"/volumes/kubernetes.io~"+plugin+"/*")
	}
	out := map[string]string{}
	for _, pattern := range patterns {
		dirs, err := filepath.Glob(pattern)
		require.NoError(s, err)
		for _, dir := range dirs {
			name := filepath.Base(dir)
			if apiAccess.MatchString(name) {
				name = "kube-api-access"
			}
			out[name] = dir
		}
	}
	return out
}

// tree adds each file below dir: its mode, its owners, and what is in it. Of links it is
// where they lead, whoever owns them, and of directories who may look into them: nobody
// may write there, for containers mount them read-only. Directories that bear a time or
// a digest lose it, and tokens are told by what they are for.
func (l *likeness) tree(into map[string]string, name, dir string) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path) // both are absolute
		into[filepath.Join(name, versionDir.ReplaceAllString(rel, "..version"))] = l.file(path, err)
		return nil
	})
}

func (l *likeness) file(path string, err error) string {
	info, lost := os.Lstat(path)
	if err = errors.Join(err, lost); err != nil {
		return err.Error()
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		return fmt.Sprintf("directory %o", info.Mode().Perm()&0o555)
	case fs.ModeSymlink:
		to, err := os.Readlink(path)
		return fmt.Sprintf("link %s %v", versionDir.ReplaceAllString(to, "..version"), err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%s %d:%d %s", info.Mode(), stat.Uid, stat.Gid, l.content(path))
}

var versionDir = regexp.MustCompile(`^\.\.[0-9][^/]*|^\.\.[0-9a-f]{16,}`)

// kubeletsOwn are annotations that a kubelet adds to each pod: where it has it from, and
// since when.
var kubeletsOwn = regexp.MustCompile(`(?m)\n?^kubernetes\.io/config\.(seen|source)=.*$`)

func (l *likeness) content(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	data = kubeletsOwn.ReplaceAll(data, nil)
	if claims, ok := claimsOf(string(data)); ok {
		l.tokens = append(l.tokens, string(data))
		return fmt.Sprintf("token for %q of %s", claims.Audience, claims.Subject)
	}
	if len(data) > 100 {
		return fmt.Sprintf("%d bytes, %x", len(data), sha256.Sum256(data))
	}
	return fmt.Sprintf("%q", data)
}

// claims are those of a service account's token (k8s.io/kubernetes@v1.37.2
// pkg/serviceaccount/claims.go).
type claims struct {
	Subject    string   `json:"sub"`
	Audience   []string `json:"aud"`
	Expires    int64    `json:"exp"`
	Issued     int64    `json:"iat"`
	Kubernetes struct {
		Node, Pod *struct{ Name, UID string }
	} `json:"kubernetes.io"`
}

func claimsOf(token string) (c claims, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, false
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	return c, err == nil && json.Unmarshal(text, &c) == nil && c.Subject != ""
}

// startedWith are the environment, sorted, and the arguments of a process. What
// differs between any two pods is left out.
func (s *scene) startedWith(proc string) (environment, arguments []string) {
	s.Helper()
	read := func(name string) []string {
		data, err := os.ReadFile(filepath.Join(proc, name))
		require.NoError(s, err)
		return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
	}
	for _, v := range read("environ") {
		if !strings.HasPrefix(v, "HOSTNAME=") && !strings.HasPrefix(v, "KUBERNETES_") {
			environment = append(environment, v)
		}
	}
	slices.Sort(environment)
	return environment, read("cmdline")
}

// containerProcesses are the first processes of all containers, by their ids.
func containerProcesses() map[string]int {
	out := map[string]int{}
	files, _ := filepath.Glob("/proc/[0-9]*/cgroup") // fails for a bad pattern only
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		line, _, _ := strings.Cut(string(text), "\n")
		id := filepath.Base(line)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if first := out[id]; first == 0 || pid < first {
			out[id] = pid
		}
	}
	return out
}

// alike asserts that each checkpoint is as its parent was. What volumes it has beside
// are its own affair.
func (s *scene) alike(corpus []specimen, parents, checkpoints map[string]likeness) {
	s.Helper()
	files, environment := 0, 0
	for _, p := range corpus {
		if p.Refused != "" {
			continue
		}
		parent, checkpoint := parents[p.Name], checkpoints[p.Name]
		for key := range checkpoint.Volumes {
			volume, _, _ := strings.Cut(key, "/")
			if _, ok := parent.Volumes[volume]; !ok {
				delete(checkpoint.Volumes, key)
			}
		}
		files += len(parent.Volumes) + len(parent.Mounts)
		for _, of := range parent.Environment {
			environment += len(of)
		}
		assert.Empty(s, differences(parent.Volumes, checkpoint.Volumes), "%s: files, as they lie on the node", p.Name)
		assert.Empty(s, differences(parent.Mounts, checkpoint.Mounts), "%s: files, as its containers see them", p.Name)
		assert.Equal(s, parent.Environment, checkpoint.Environment, "%s: environment", p.Name)
		assert.Equal(s, parent.Arguments, checkpoint.Arguments, "%s: arguments", p.Name)
	}
	require.False(s, s.Failed())
	require.Greater(s, files, 100)
	require.Greater(s, environment, 100)
	s.timeline.add(time.Now(), "compared: %d files, %d environment variables", files, environment)
}

func differences(parent, checkpoint map[string]string) []string {
	var out []string
	for key, is := range parent {
		if checkpoint[key] != is {
			out = append(out, fmt.Sprintf("%s: parent %q, checkpoint %q", key, is, checkpoint[key]))
		}
	}
	for key, is := range checkpoint {
		if _, ok := parent[key]; !ok {
			out = append(out, fmt.Sprintf("%s: checkpoint only, %q", key, is))
		}
	}
	slices.Sort(out)
	return out
}
