package sim

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
)

const (
	namespace  = "kube-system"
	nodeName   = "master-1"
	server     = "kube-apiserver"          // has a lock
	controller = "kube-controller-manager" // has none
	scheduler  = "kube-scheduler"          // has one, and starts after the server
	lockDir    = "/run/lock/pod-checkpointer"
	lockPath   = lockDir + "/" + server + ".lock"
)

var workloads = []string{server, controller, scheduler}

// volumes are those in which the server has its Secret.
var volumes = []string{"keys", "more"}

// locked is how many of them have a lock.
const locked = 2

// lockOf is the lock of a workload, "" of one that has none.
func lockOf(workload string) string {
	if workload == controller {
		return ""
	}
	return lockDir + "/" + workload + ".lock"
}

// cluster is what etcd holds, and the controller that works on it.
type cluster struct {
	sets    []*daemonSet
	pods    []*v1.Pod // of this node
	secret  int       // revision of the Secret that the server mounts
	version int       // changes with each write
	seen    *api.View // of that version
	made    int
}

// daemonSet makes the parents of one workload.
type daemonSet struct {
	name    string
	program program
	version int           // of the template
	due     time.Duration // when the controller comes to it
	grace   string        // annotation handoff-grace; "": none
	probed  bool          // it has a readiness probe
	port    bool          // two of its programs can't run at once
	after   bool          // it starts after the server, and can't live without
}

// args are those of its programs: how they behave, and of which version they are.
func (s *daemonSet) args() []string {
	return []string{string(s.program), fmt.Sprintf("--version=%d", s.version)}
}

// change is a new template.
func (s *daemonSet) change(p program) { s.program, s.version = p, s.version+1 }

// set is the DaemonSet of a workload.
func (n *node) set(workload string) *daemonSet {
	return n.cluster.sets[slices.Index(workloads, workload)]
}

// apiUp tells whether the API server answers: one of its programs serves and is
// ready, whichever it is.
func (n *node) apiUp() bool {
	p := n.locks[lockPath].holder()
	return p != nil && p.container.pod.workload == server && n.ready(p)
}

// control is the DaemonSet controller. It runs in the controller manager, whose
// programs elect a leader.
func (n *node) control() {
	led := slices.ContainsFunc(n.runtime.containers((*container).live), func(c *container) bool {
		return c.pod.workload == controller && c.process != nil && c.process.readyAt != 0 && n.now-c.process.readyAt > n.election
	})
	if !led || !n.apiUp() {
		return
	}
	for _, set := range n.cluster.sets {
		if n.now < set.due {
			continue
		}
		set.due = n.now + n.between(time.Second, 3*time.Second)
		n.reconcile(set)
	}
}

func (n *node) reconcile(set *daemonSet) {
	i := slices.IndexFunc(n.cluster.pods, func(p *v1.Pod) bool { return p.OwnerReferences[0].Name == set.name })
	switch {
	case i < 0:
		n.cluster.create(set, n.now)
		n.trace.say("controller: new parent of %s, %s", set.name, set.args())
	case n.cluster.pods[i].DeletionTimestamp == nil && !slices.Equal(n.cluster.pods[i].Spec.Containers[0].Args, set.args()):
		n.cluster.delete(n.cluster.pods[i], n.now)
		n.trace.say("controller: deletes the outdated parent of %s", set.name)
	}
}

func (c *cluster) delete(p *v1.Pod, now time.Duration) {
	c.version++
	for i, old := range c.pods {
		if old.UID == p.UID && old.DeletionTimestamp == nil {
			c.pods[i] = old.DeepCopy()
			c.pods[i].DeletionTimestamp = &metav1.Time{Time: wall(now)}
		}
	}
}

// stays tells whether a pod is there and not being deleted.
func (c *cluster) stays(uid types.UID) bool {
	return slices.ContainsFunc(c.pods, func(p *v1.Pod) bool { return p.UID == uid && p.DeletionTimestamp == nil })
}

func (c *cluster) remove(uid types.UID) {
	c.version++
	c.pods = slices.DeleteFunc(c.pods, func(p *v1.Pod) bool { return p.UID == uid })
}

// apiView is what the API server tells a client: the parents, and the mirrors of
// the static pods that the kubelet has.
func (n *node) apiView() *api.View {
	c := &n.cluster
	var mirrors []v1.Pod
	version := fmt.Sprint(c.version)
	for _, p := range n.kube.pods {
		if p.source == "file" && n.kube.synced {
			mirror := p.DeepCopy()
			metav1.SetMetaDataAnnotation(&mirror.ObjectMeta, "kubernetes.io/config.mirror", string(p.UID))
			mirrors = append(mirrors, *mirror)
			version += "+" + string(p.UID)
		}
	}
	if c.seen != nil && c.seen.ResourceVersion == version {
		return c.seen // the loop makes its snapshots of a view once
	}
	c.seen = &api.View{
		Pods: mirrors, ResourceVersion: version, KubeSystemUID: "cluster", NodeUID: "node", NodeIP: "10.0.0.1",
		Secrets: map[api.Ref]*v1.Secret{
			{Kind: api.Secret, Namespace: namespace, Name: server}: {Data: c.contents()},
		},
	}
	for _, p := range c.pods {
		c.seen.Pods = append(c.seen.Pods, *p.DeepCopy())
	}
	return c.seen
}

func (c *cluster) payload() []byte { return fmt.Appendf(nil, "key %d", c.secret) }

// create makes the next parent of a DaemonSet.
func (c *cluster) create(set *daemonSet, now time.Duration) {
	c.version++
	c.made++
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s-%s", set.name, suffix(c.made)),
			UID:               types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", c.made)),
			CreationTimestamp: metav1.Time{Time: wall(now)},
			Annotations:       map[string]string{snapshot.AnnotationCheckpoint: "true"},
			OwnerReferences:   []metav1.OwnerReference{{Kind: "DaemonSet", Name: set.name, Controller: new(true)}},
		},
		Spec: v1.PodSpec{
			NodeName: nodeName, HostNetwork: true,
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []v1.Container{{
				Name: set.name, Image: "images.example/" + set.name + ":v1",
				Command: []string{"/usr/local/bin/" + set.name}, Args: set.args(),
			}},
		},
	}
	if set.grace != "" {
		pod.Annotations[snapshot.AnnotationHandoffGrace] = set.grace
		pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
	}
	if set.after {
		pod.Annotations[snapshot.AnnotationAfter] = server
	}
	if lockOf(set.name) != "" {
		guard(pod, set.name)
	} else if set.probed {
		pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{
			HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(10257), Path: "/healthz"},
		}}
	}
	c.pods = append(c.pods, pod)
}

// addresses are where the programs answer.
var addresses = map[string]string{server: "127.0.0.1:6443", controller: "127.0.0.1:10257", scheduler: "127.0.0.1:10259"}

// guard gives a program its lock and its probe, and the server the Secret that it
// mounts.
func guard(pod *v1.Pod, name string) {
	const bin = "/opt/pod-checkpointer/bin/lock-exec"
	pod.Annotations[snapshot.AnnotationLock] = name
	c := &pod.Spec.Containers[0]
	c.Command = append([]string{bin, "--lock", lockOf(name), "--"}, c.Command...)
	c.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{
		Exec: &v1.ExecAction{Command: []string{bin, "check", "--ready", "--lock", lockOf(name), "--", "https", "https://" + addresses[name] + "/readyz"}},
	}}
	c.VolumeMounts = []v1.VolumeMount{{Name: "lock", MountPath: lockDir}}
	pod.Spec.Volumes = []v1.Volume{{Name: "lock", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: lockDir}}}}
	if name == server {
		for _, volume := range volumes {
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: volume, MountPath: "/etc/kubernetes/" + volume})
			pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: volume, VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: server}}})
		}
	}
}

// suffix is one that the API server could have generated.
func suffix(n int) string {
	const alphabet = "bcdfghjklm"
	s := fmt.Appendf(nil, "%05d", n)
	for i := range s {
		s[i] = alphabet[s[i]-'0']
	}
	return string(s)
}
