package sim

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
)

// kubeletModel is a kubelet. Until the API server has told it of its pods it is
// unsynced: it starts static pods and restarts their containers, and stops none.
type kubeletModel struct {
	upAt     time.Duration // when it is up
	synced   bool
	pods     []*supervised
	started  map[string]string // UID by name, of each static pod that this kubelet started
	reflects time.Duration     // when it hears of the API server's pods; 0: it has not connected
	swept    time.Duration
}

// supervised is a pod that the kubelet knows of.
type supervised struct {
	*pod
	due      time.Duration // when its container is started next; 0: it runs
	restarts int
	ending   bool
}

// step is what a kubelet does in one step.
func (n *node) kubelet() {
	k := &n.kube
	if n.now < k.upAt {
		return
	}
	n.readManifests()
	n.reflect()
	for _, p := range slices.Clone(k.pods) {
		if p.ending {
			n.finish(p)
		} else {
			n.supervise(p)
		}
	}
	if k.synced && n.now-k.swept >= 2*time.Second {
		k.swept = n.now
		n.sweep()
	}
}

func (k *kubeletModel) find(uid string) *supervised {
	for _, p := range k.pods {
		if string(p.UID) == uid {
			return p
		}
	}
	return nil
}

func (k *kubeletModel) forget(p *supervised) {
	k.pods = slices.DeleteFunc(k.pods, func(q *supervised) bool { return q == p })
}

// readManifests follows the static pod directory.
func (n *node) readManifests() {
	k := &n.kube
	wanted := map[string]bool{}
	for _, p := range n.staticPods() {
		uid := string(p.UID)
		wanted[uid] = true
		if known := k.find(uid); known != nil {
			continue
		}
		if !k.synced {
			// Two pods of one name: the second waits for the first for ever.
			if other, ok := k.started[p.Name]; ok && other != uid {
				continue
			}
		}
		k.started[p.Name] = uid
		k.pods = append(k.pods, &supervised{pod: p, due: n.now + n.between(200*time.Millisecond, time.Second)})
	}
	for _, p := range slices.Clone(k.pods) {
		if p.source != "file" || wanted[string(p.UID)] || p.ending {
			continue
		}
		if k.synced {
			n.end(p, p.grace)
		} else {
			k.forget(p) // its containers run on, and nobody restarts them
		}
	}
}

// staticPods are the pods of the static pod directory, as it is now.
func (n *node) staticPods() []*pod {
	var pods []*pod
	for _, file := range n.readDir() {
		if strings.HasPrefix(file.name, ".") {
			continue
		}
		p, ok := n.parsed[file.data]
		if !ok {
			var object v1.Pod
			if err := json.Unmarshal([]byte(file.data), &object); err != nil {
				n.broken("the kubelet can't read %s: %v", file.name, err)
				continue
			}
			object.Name += "-" + nodeName
			p = newPod(&object, "file")
			n.parsed[file.data] = p
		}
		pods = append(pods, p)
	}
	return pods
}

// reflect follows the API server's pods while it is up.
func (n *node) reflect() {
	k := &n.kube
	switch {
	case !n.apiUp() || n.now < n.cutOff:
		k.reflects = 0
		return
	case k.reflects == 0:
		k.reflects = n.now + n.between(300*time.Millisecond, 8*time.Second)
	}
	if n.now < k.reflects {
		return
	}
	if !k.synced {
		k.synced = true
		n.trace.say("kubelet: synced")
	}
	told := map[string]*v1.Pod{}
	for _, object := range n.cluster.pods {
		told[string(object.UID)] = object
		runs := len(n.runtime.containers(func(c *container) bool { return c.live() && c.pod.UID == object.UID })) > 0
		if (object.DeletionTimestamp == nil || runs) && k.find(string(object.UID)) == nil {
			k.pods = append(k.pods, &supervised{pod: newPod(object, "api"), due: n.now + n.between(200*time.Millisecond, 2*time.Second)})
		}
	}
	for _, p := range slices.Clone(k.pods) {
		if p.source == "api" && !p.ending && (told[string(p.UID)] == nil || told[string(p.UID)].DeletionTimestamp != nil) {
			n.end(p, p.grace)
		}
	}
	for _, object := range slices.Clone(n.cluster.pods) { // it never ran here, or has ended
		if object.DeletionTimestamp != nil && k.find(string(object.UID)) == nil {
			n.cluster.remove(object.UID)
		}
	}
}

// end stops a pod for good.
func (n *node) end(p *supervised, grace time.Duration) {
	p.ending = true
	n.trace.say("kubelet: ends %s %s", p.workload, p.role())
	for _, c := range n.runtime.containers(func(c *container) bool { return c.pod.UID == p.UID }) {
		n.stop(c, max(grace, time.Second))
	}
}

// finish forgets a pod that has ended.
func (n *node) finish(p *supervised) {
	for _, s := range n.runtime.of(string(p.UID)) {
		if slices.ContainsFunc(s.containers, (*container).live) {
			return
		}
		s.ready = false
	}
	n.kube.forget(p)
}

// supervise starts what has to run and does not.
func (n *node) supervise(p *supervised) {
	s := n.runtime.standing(string(p.UID))
	var last *container
	if s != nil && len(s.containers) > 0 {
		last = s.containers[len(s.containers)-1]
	}
	switch {
	case last != nil && last.live():
		p.due = 0
		return
	case p.due == 0: // it has ended
		if last != nil && last.ended-last.created > 10*time.Minute {
			p.restarts = 0
		}
		p.due = n.now + n.between(200*time.Millisecond, time.Second) + backoff(p.restarts)
		p.restarts++
	}
	if n.now < p.due || !n.mounted(p.pod) {
		return
	}
	if s == nil {
		s = n.newSandbox(p.pod)
	}
	n.newContainer(s)
	p.due = 0
}

// backoff is that of the kubelet: none, 10s, and so on to 5m.
func backoff(restarts int) time.Duration {
	if restarts == 0 {
		return 0
	}
	return min(5*time.Second<<min(restarts, 10), 5*time.Minute)
}

// sweep is the housekeeping of a synced kubelet: it ends what it does not know,
// and removes what has ended long ago.
func (n *node) sweep() {
	for _, s := range slices.Clone(n.runtime.sandboxes) {
		if n.kube.find(string(s.pod.UID)) != nil {
			continue
		}
		running := false
		for _, c := range s.containers {
			if c.live() {
				n.stop(c, time.Second)
				running = running || c.live()
			}
		}
		if s.ready && !running {
			s.ready = false
		}
		if !running && n.now-s.created > time.Minute && n.rng.IntN(10) == 0 {
			n.runtime.sandboxes = slices.DeleteFunc(n.runtime.sandboxes, func(o *sandbox) bool { return o == s })
		}
	}
}

// restart ends the kubelet; the containers run on.
func (n *node) restartKubelet(down time.Duration) {
	n.kube = kubeletModel{upAt: n.now + down, started: map[string]string{}}
}

// view is what the kubelet's sockets tell.
func (n *node) kubeletView() (kubelet.View, error) {
	k := &n.kube
	if n.now < k.upAt {
		return kubelet.View{}, errDown
	}
	v := kubelet.View{PID: 1, Regime: kubelet.Unknown, Why: "podresources lists static pods only"}
	for _, p := range k.pods {
		v.Knows = append(v.Knows, kubelet.PodName{Namespace: p.Namespace, Name: p.Name})
		if p.source == "api" {
			v.Regime, v.Why = kubelet.Synced, "podresources"
		}
	}
	if n.podsAPI && v.Regime == kubelet.Unknown {
		v.Regime = map[bool]kubelet.Regime{true: kubelet.Synced, false: kubelet.Unsynced}[k.synced]
	}
	return v, nil
}
