package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
	"github.com/pod-checkpointer/pod-checkpointer/lock"
)

// sighting is what uninstall saw of the node.
type sighting struct {
	pods     []cri.Pod
	listing  kubelet.Listing
	writer   lock.State   // of the store's own lock
	locks    []lock.State // of the files in --lock-dir
	handoffs []string     // workloads whose handoff is open in this boot, by the store
	launched []string     // static pods of others whose file names lock-exec
}

// look sees all of the node, or fails: what can't be seen is not gone.
func (u *uninstaller) look(ctx context.Context) (*sighting, error) {
	c := u.config
	s := &sighting{}
	var err error
	if s.pods, err = u.pods(ctx); err != nil {
		return nil, err
	}
	if s.listing, err = u.manifests.List(); err != nil {
		return nil, err
	}
	for _, pod := range s.listing.Foreign {
		data, err := os.ReadFile(filepath.Join(c.StaticPodDir, pod.File))
		if err == nil && strings.Contains(string(data), "lock-exec") {
			s.launched = append(s.launched, pod.Namespace+"/"+pod.Name)
		}
	}
	if s.writer, err = lock.Inspect(c.Proc, store.LockPath(c.StateDir)); err != nil {
		return nil, err
	}
	files, err := lockFiles(c.LockDir)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		state, err := lock.Inspect(c.Proc, file)
		if err != nil {
			return nil, err
		}
		if state.Split {
			return nil, fmt.Errorf("LockSplit: %s was replaced under a process that uses it: end that process (/proc/locks names it)", file)
		}
		s.locks = append(s.locks, state)
	}
	s.handoffs = handoffs(c)
	return s, s.complete()
}

func (u *uninstaller) pods(ctx context.Context) ([]cri.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	pods, err := u.runtime.Pods(ctx)
	if err != nil {
		return nil, fmt.Errorf("which pods run is not known: %w: start the container runtime, or correct --cri-endpoint", err)
	}
	return pods, nil
}

// complete: a runtime that does not list who has a lock lists too little.
func (s *sighting) complete() error {
	for _, state := range append(slices.Clone(s.locks), s.writer) {
		for _, p := range processes(state) {
			if _, known := s.pod(p); p.PodUID != "" && !known {
				return fmt.Errorf("process %d of pod %s uses %s, but the container runtime lists no such pod: check --cri-endpoint", p.PID, p.PodUID, state.Path)
			}
		}
	}
	return nil
}

// lockFiles are those that lock-exec has made in the directory.
func lockFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var files []string
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasSuffix(e.Name(), ".lock") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, err
}

// handoffs are the workloads whose handoff is open. A store that can't be read tells
// of none: to remove it is what this is for.
func handoffs(c checkpoint.Config) []string {
	boot, _ := os.ReadFile(filepath.Join(c.Proc, "sys/kernel/random/boot_id"))
	dir, err := durable.Open(c.StateDir)
	if err != nil {
		return nil
	}
	disk, err := store.Open(dir.ReadOnly())
	if err != nil {
		return nil
	}
	var open []string
	for _, w := range disk.Workloads() {
		if h := w.State.Handoff; h != nil && h.BootID == strings.TrimSpace(string(boot)) {
			open = append(open, w.Key.String())
		}
	}
	return open
}

// refusals are the reasons to remove nothing, each with what to do about it.
func refusals(s *sighting, c checkpoint.Config) error {
	var why []error
	refuse := func(format string, args ...any) { why = append(why, fmt.Errorf("- "+format, args...)) }
	deployed := map[string]bool{}
	daemon := false
	for _, pod := range s.pods {
		daemon = daemon || alive(pod) && isCopy(pod)
		if alive(pod) && pod.Source == "api" && pod.Annotation(snapshot.AnnotationFormat) != "" {
			deployed[pod.Namespace+"/"+pod.Name] = true
		}
	}
	for _, p := range processes(s.writer) {
		switch pod, ok := s.pod(p); {
		case !ok:
			refuse("process %d uses %s: end that daemon, and run this again", p.PID, c.StateDir)
		case pod.Source == "api":
			deployed[pod.Namespace+"/"+pod.Name] = true
		case !isCopy(pod):
			refuse("the static pod %s/%s, which the daemon did not write, uses %s: move its manifest out of %s, and run this again", pod.Namespace, pod.Name, c.StateDir, c.StaticPodDir)
		}
	}
	for name := range deployed {
		refuse("the daemon %s is on this node and would write everything again: kubectl delete -k manifests/base, wait until the pod is gone, and run this again", name)
	}
	out := fmt.Sprintf("if nothing is to serve here any more, move %s and its manifest out of %s instead; then run this again", kubelet.CopyFile, c.StaticPodDir)
	for workload, how := range s.serving(c) {
		refuse("the checkpoint of %s %s: wait until its pod has taken over (/status says Protected); %s", workload, how, out)
	}
	if daemon { // else nobody is left who would close it
		for _, workload := range s.handoffs {
			refuse("%s is being handed over: wait until /status says Protected, and run this again", workload)
		}
	}
	slices.SortFunc(why, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(why...)
}

// serving are the workloads whose checkpoint serves or is about to, and how.
func (s *sighting) serving(c checkpoint.Config) map[string]string {
	serving := map[string]string{}
	taken := map[string]bool{}
	for _, state := range s.locks {
		taken[state.Path] = state.Holder != nil
		if state.Holder == nil {
			continue
		}
		if pod, ok := s.pod(*state.Holder); ok && isCheckpoint(pod) {
			serving[pod.Annotation(snapshot.AnnotationCheckpointOf)] = "serves (it holds " + state.Path + ")"
		}
	}
	for _, m := range s.listing.Ours {
		if name := lockOf(m); name != "" && !taken[filepath.Join(c.LockDir, name+".lock")] {
			serving[m.Namespace+"/"+m.Workload] = "is being started (" + filepath.Join(c.StaticPodDir, m.File) + ")"
		}
	}
	for _, pod := range s.pods {
		runs := slices.ContainsFunc(pod.Containers, func(c cri.Container) bool { return c.State != cri.Exited })
		if isCheckpoint(pod) && runs && pod.Annotation(snapshot.AnnotationLock) == "" {
			serving[pod.Annotation(snapshot.AnnotationCheckpointOf)] = "runs, and has no lock to tell whether its pod does too"
		}
	}
	return serving
}

// lockOf is the name of the lock that a checkpoint takes, "" if it takes none.
func lockOf(m kubelet.Manifest) string {
	var pod struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(m.Data, &pod) // we wrote it, as JSON
	return pod.Metadata.Annotations[snapshot.AnnotationLock]
}

// users are the pods that start through lock-exec, or are seen to use a lock.
func (s *sighting) users() []string {
	names := slices.Clone(s.launched)
	for _, pod := range s.pods {
		if alive(pod) && pod.Annotation(snapshot.AnnotationLock) != "" {
			names = append(names, pod.Namespace+"/"+pod.Name)
		}
	}
	for _, state := range s.locks {
		for _, p := range processes(state) {
			name := fmt.Sprintf("process %d", p.PID)
			if pod, ok := s.pod(p); ok {
				name = pod.Namespace + "/" + pod.Name
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// pod is that of a process.
func (s *sighting) pod(p lock.Process) (cri.Pod, bool) {
	i := slices.IndexFunc(s.pods, func(pod cri.Pod) bool { return pod.UID == p.PodUID })
	if i < 0 || p.PodUID == "" {
		return cri.Pod{}, false
	}
	return s.pods[i], true
}

// processes are all that hold the lock or wait for it.
func processes(state lock.State) []lock.Process {
	all := slices.Clone(state.Waiters)
	if state.Holder != nil {
		all = append(all, *state.Holder)
	}
	return all
}

func isCopy(pod cri.Pod) bool {
	return pod.Source != "api" && pod.Annotation(snapshot.AnnotationCopyOf) != ""
}

func isCheckpoint(pod cri.Pod) bool {
	return pod.Source != "api" && pod.Annotation(snapshot.AnnotationCheckpointOf) != ""
}

// alive: something of the pod may run.
func alive(pod cri.Pod) bool {
	return pod.Ready() || slices.ContainsFunc(pod.Containers, func(c cri.Container) bool { return c.State != cri.Exited })
}
