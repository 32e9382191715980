//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/test/lab"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// plant makes the corpus, and returns when all of the protected ones run.
func (s *scene) plant(corpus []specimen) {
	s.Helper()
	s.Cleanup(func() { // of a scenario that fails half-way
		if *keep {
			return
		}
		_, _ = s.lab.Kubectl(cluster.ctx, "delete", "all", "--namespace=kube-system", "--selector="+ofCorpus+"=corpus", "--force", "--wait=false")
	})
	s.withFile(s.objects(), "create")
	list := map[string]any{"apiVersion": "v1", "kind": "List"}
	var items []any
	for _, p := range corpus {
		items = append(items, s.object(p))
	}
	list["items"] = items
	text, err := json.Marshal(list)
	require.NoError(s, err)
	s.withFile(text, "create")
	s.timeline.add(time.Now(), "%d pods made", len(corpus))
	s.awaitRunning(corpus, "parents", s.parentOf)
	for _, p := range corpus {
		if p.Debug {
			s.debug(p)
		}
	}
}

// objects are those that the pods name.
func (s *scene) objects() []byte {
	s.Helper()
	text, err := os.ReadFile("testdata/corpus/objects.yaml")
	require.NoError(s, err)
	return text
}

// withFile runs kubectl with a file of that content.
func (s *scene) withFile(text []byte, args ...string) {
	s.Helper()
	require.NoError(s, os.WriteFile(s.path("/run")+"/corpus", text, 0o600))
	s.kubectl(append(args, "--filename=/run/corpus")...)
}

// debug adds an ephemeral container to a pod.
func (s *scene) debug(p specimen) {
	s.Helper()
	patch := `{"spec":{"ephemeralContainers":[{"name":"debug","image":"` + pauseImage + `"}]}}`
	s.kubectl("patch", "pod", p.workload(), "--namespace=kube-system", "--subresource=ephemeralcontainers", "--patch="+patch)
	s.await(soon, "the ephemeral container of "+p.Name, func(now sight) bool {
		pod, ok := s.parentOf(p)
		c, made := pod.Container("debug")
		return ok && made && c.State == cri.Running
	})
}

// parentOf is the pod of the API server.
func (s *scene) parentOf(p specimen) (cri.Pod, bool) {
	return s.podWhere(func(pod cri.Pod) bool { return pod.Source == "api" && pod.Sandboxes[0].Labels[ofSpecimen] == p.Name })
}

// checkpointOf is the static pod that stands in for it.
func (s *scene) checkpointOf(p specimen) (cri.Pod, bool) {
	return s.podWhere(func(pod cri.Pod) bool {
		return pod.Source == "file" && pod.Annotation(ofKey) == "kube-system/"+p.status()
	})
}

func (s *scene) podWhere(is func(cri.Pod) bool) (cri.Pod, bool) {
	pods := s.eyes.sight().pods
	i := slices.IndexFunc(pods, func(pod cri.Pod) bool { return pod.Ready() && is(pod) })
	if i < 0 {
		return cri.Pod{}, false
	}
	return pods[i], true
}

// awaitRunning waits until the protected ones run, all of their containers.
func (s *scene) awaitRunning(corpus []specimen, what string, pod func(specimen) (cri.Pod, bool)) {
	s.Helper()
	var missing []string
	defer func() {
		if s.Failed() {
			fmt.Println("not running:", what, missing)
		}
	}()
	var last time.Time
	s.await(2*eventually, what+" to run", func(sight) bool {
		if time.Since(last) < 50*beat { // it takes long to find out
			return false
		}
		last, missing = time.Now(), nil
		processes := map[string]int{}
		for _, p := range corpus {
			if p.Refused != "" {
				continue
			}
			found, ok := pod(p)
			if ok && len(processes) == 0 {
				processes = containerProcesses()
			}
			if !ok || !s.allRun(p, found, processes) {
				missing = append(missing, p.Name)
				if len(missing) > 5 { // it need not be known now
					return false
				}
			}
		}
		return len(missing) == 0
	})
	s.timeline.add(time.Now(), "%s run", what)
}

// allRun tells whether each of its containers has become its program.
func (s *scene) allRun(p specimen, pod cri.Pod, processes map[string]int) bool {
	spec := s.template(p).Spec
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		running, ok := pod.Container(c.Name)
		switch {
		case !ok:
			return false
		case running.State == cri.Exited && c.RestartPolicy == nil && slices.ContainsFunc(spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name }):
			continue
		case running.State != cri.Running:
			return false
		}
		command, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(processes[running.ID]), "cmdline"))
		program, _, _ := strings.Cut(string(command), "\x00")
		if err != nil || filepath.Base(program) == "lock-exec" {
			return false
		}
	}
	return true
}

// absence is a time in which no API server runs.
type absence struct {
	*scene
	end  context.CancelFunc
	done sync.WaitGroup
}

// powerCutForGood is cutPower after which no control plane comes back by itself: the
// locks of its parts are held by programs on the node.
func (s *scene) powerCutForGood() *absence {
	s.Helper()
	s.cutPower()
	a := &absence{scene: s}
	var ctx context.Context
	ctx, a.end = context.WithCancel(cluster.ctx)
	require.NoError(s, os.MkdirAll(s.path(lockDir), 0o755))
	for _, name := range controlPlane {
		a.done.Go(func() {
			file := lockDir + "/" + name + ".lock"
			cmd := exec.CommandContext(ctx, binDir+"/lock-exec", "--lock", file, "--", "sleep", "infinity")
			if err := s.lab.Run(cmd); ctx.Err() == nil {
				s.Errorf("hold %s: %v", file, err)
			}
		})
	}
	s.Cleanup(a.over)
	s.await(soon, "the locks of the control plane to be held", func(sight) bool {
		return !slices.ContainsFunc(controlPlane, func(name string) bool { holder, _ := s.lock(name); return holder.role != asHost })
	})
	s.timeline.add(time.Now(), "booted; the control plane stays away")
	return a
}

// comeBack lets the control plane start, and the kubelet anew: it has asked in vain for
// so long that it would ask again in a minute.
func (a *absence) comeBack() {
	a.Helper()
	a.over()
	a.await(soon, "the API, out of the checkpoint", byCheckpoint)
	require.NoError(a, a.lab.Kill(lab.Kubelet))
	require.NoError(a, a.lab.Start(cluster.ctx, lab.Kubelet))
}

func (a *absence) over() {
	a.end()
	a.done.Wait()
}

// naive makes static pods that are as the refused parents are, as somebody would without
// a thought, and asserts that the kubelet starts none of them. One that is as the plain
// parent is it does start.
func (s *scene) naive(corpus []specimen, kubelet string) {
	s.Helper()
	var files []string
	for _, p := range corpus {
		if p.Kubelet != kubelet && p.Name != "plain" {
			continue
		}
		pod := &corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: "naive-" + p.Name, Namespace: "kube-system"},
			Spec:       s.template(p).Spec,
		}
		require.NoError(s, s.lab.PlaceManifest(pod.Name+".yaml", pod))
		files = append(files, filepath.Join(s.path(manifestDir), pod.Name+".yaml"))
	}
	require.Greater(s, len(files), 1)
	naive := func(now sight) (ran []string) {
		for _, pod := range now.pods {
			if strings.HasPrefix(pod.Name, "naive-") && anyRuns(pod) {
				ran = append(ran, pod.Name)
			}
		}
		return ran
	}
	s.await(soon, "the naive plain pod to run", func(now sight) bool { return len(naive(now)) > 0 })
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); s.rest("nothing") {
		ran := naive(s.eyes.sight())
		require.Len(s, ran, 1, "%s", ran)
		require.Contains(s, ran[0], "naive-plain-")
	}
	for _, file := range files {
		require.NoError(s, os.Remove(file))
	}
	s.timeline.add(time.Now(), "as naive static pods %d run %s", len(files)-1, map[string]string{"never": "never", "offline": "not without an API server"}[kubelet])
}

// onlyTheAdmitted asserts that the daemon has written a manifest for each protected
// one and for nobody else, and that nothing had to be started twice.
func (s *scene) onlyTheAdmitted(corpus []specimen) {
	s.Helper()
	want, have := map[string]bool{}, map[string]bool{}
	for _, p := range corpus {
		if p.Refused == "" {
			want["kube-system/"+p.status()] = true
		}
	}
	for _, file := range s.filesIn(manifestDir) {
		if of, _ := activationIn(file); of != "" {
			have[of] = true
		}
	}
	require.Equal(s, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have)), "what has a manifest")

	for _, pod := range s.eyes.sight().pods {
		for _, c := range pod.Containers {
			if pod.Annotation(ofKey) != "" && pod.Ready() {
				require.Zero(s, c.Attempt, "how often %s of %s was started again", c.Name, pod.Name)
			}
		}
	}
	s.timeline.add(time.Now(), "of the refused ones none runs")
}

// awaitProbes waits until the kubelet has seen each probe of each checkpoint succeed.
func (s *scene) awaitProbes(corpus []specimen) {
	s.Helper()
	var missing []string
	s.await(soon, "all probes to succeed", func(sight) bool {
		succeeded := s.probed()
		missing = nil
		for _, p := range corpus {
			checkpoint, _ := s.checkpointOf(p)
			for _, c := range p.Spec.Containers {
				for kind, probe := range map[string]*corev1.Probe{"Readiness": c.ReadinessProbe, "Liveness": c.LivenessProbe, "Startup": c.StartupProbe} {
					if p.Refused == "" && probe != nil && !succeeded[checkpoint.Name+" "+kind] {
						missing = append(missing, p.Name+" "+kind)
					}
				}
			}
		}
		return len(missing) == 0
	})
}

// probed are the probes that have succeeded, by pod and kind, as the kubelet's metrics
// say (k8s.io/kubernetes@v1.37.2 pkg/kubelet/prober/prober_manager.go).
func (s *scene) probed() map[string]bool {
	client := &http.Client{Transport: &http.Transport{DialContext: s.lab.Dial, DisableKeepAlives: true}, Timeout: time.Second}
	answer, err := client.Get("http://127.0.0.1:10255/metrics/probes")
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	out := map[string]bool{}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, "prober_probe_total{") || !strings.Contains(line, `result="successful"`) {
			continue
		}
		label := func(name string) string {
			_, rest, _ := strings.Cut(line, name+`="`)
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
		out[label("pod")+" "+label("probe_type")] = true
	}
	return out
}

// awaitHandedOver waits until parents have taken all over again.
func (s *scene) awaitHandedOver(corpus []specimen) {
	s.Helper()
	s.await(2*eventually, "no checkpoint to be left", func(now sight) bool {
		return now.status != nil && !slices.ContainsFunc(corpus, func(p specimen) bool {
			w := now.workload("kube-system/" + p.status())
			_, runs := s.checkpointOf(p)
			return runs || !p.asSaid(w) || w.Activation != ""
		})
	})
	s.awaitRunning(corpus, "parents", s.parentOf)
}

// weed takes the refused ones away, over which the kubelet would toil in vain, and
// returns the others.
func (s *scene) weed(corpus []specimen) (protected []specimen) {
	s.Helper()
	refused := []string{"delete", "pods", "--namespace=kube-system", "--force", "--grace-period=0"}
	for _, p := range corpus {
		if p.Refused == "" {
			protected = append(protected, p)
		} else {
			refused = append(refused, p.workload())
		}
	}
	s.patiently(refused...)
	return protected
}

// uproot takes the pods away. The daemon would keep what is on disk, and start it
// once the parents are gone, so that it is to forget them first.
func (s *scene) uproot(corpus []specimen) {
	s.Helper()
	mine := "--selector=" + ofCorpus + "=corpus"
	s.kubectl("annotate", "pods", "--namespace=kube-system", mine, "pod-checkpointer.io/checkpoint-")
	s.await(soon, "nothing to be protected", func(now sight) bool {
		return now.status != nil && !slices.ContainsFunc(corpus, func(p specimen) bool {
			return p.Refused == "" && now.finding("kube-system/"+p.status()+": Unwanted: ") == ""
		})
	})
	leader := s.eyes.sight().status.Leader
	for _, p := range corpus {
		require.NoError(s, os.RemoveAll(s.path("/var/lib/pod-checkpointer/workloads/kube-system/"+p.status())))
	}
	s.kubectl("delete", "pod", "--namespace=kube-system", strings.TrimPrefix(leader, "kube-system/"))
	s.await(soon, "another daemon to lead, which knows nothing of them", func(now sight) bool {
		return now.status != nil && now.status.Leader != leader && now.workload("kube-system/"+corpus[0].status()).Workload == ""
	})
	s.kubectl("delete", "daemonset,deployment,statefulset", "--namespace=kube-system", mine)
	s.kubectl("delete", "pods", "--namespace=kube-system", mine, "--force", "--grace-period=0")
	s.await(soon, "none of it to run", func(now sight) bool {
		return !slices.ContainsFunc(now.pods, func(pod cri.Pod) bool { return pod.Sandboxes[0].Labels[ofCorpus] == "corpus" && anyRuns(pod) })
	})
	s.timeline.add(time.Now(), "uprooted")
}
