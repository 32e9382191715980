package snapshot

import (
	"fmt"
	"path"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/pod-checkpointer/pod-checkpointer/lock/expand"
)

// What we add to a pod whose environment must not stand in its manifest.
const (
	ownMount  = "/pod-checkpointer" // in the container; our volumes are below it
	envMount  = ownMount + "/env"
	binMount  = ownMount + "/bin"
	binVolume = "pod-checkpointer-bin"
	envVolume = "pod-checkpointer-env-" // and the number of the container
)

// launchEnv makes lock-exec the launcher of every container whose environment the
// manifest can't hold, and of what is executed in it. The values come from a volume
// of that container alone.
func launchEnv(spec *v1.PodSpec, envs []environment, from source, c Config) ([]Volume, error) {
	parents := allContainers(&from.pod.Spec)
	var volumes []Volume
	for i, static := range allContainers(spec) {
		freezeProbes(static.Container, parents[i].Env)
		e := envs[i]
		names := e.files()
		if len(names) == 0 && len(e.derived) == 0 {
			continue
		}
		v := Volume{Name: envVolume + strconv.Itoa(i)}
		for _, name := range names {
			v.Files = append(v.Files, File{Path: name, Data: []byte(e.variables[name].value), Mode: 0o444})
		}
		if err := e.launch(spec, static.Container, v.Name, from.objects.Images, c.BinDir); err != nil {
			return nil, err
		}
		volumes = append(volumes, v)
	}
	return volumes, nil
}

func (e *environment) launch(spec *v1.PodSpec, c *v1.Container, volume string, images map[string]Image, binDir string) error {
	if err := e.checkMounts(c); err != nil {
		return err
	}
	if err := e.imageCommand(c, images); err != nil {
		return err
	}
	bin, err := launcher(spec, c, binDir)
	if err != nil {
		return err
	}
	if err := addVolume(spec, c, volume, "", envMount); err != nil {
		return err
	}
	flags := []string{"--env-dir", envMount}
	for _, d := range e.derived {
		flags = append(flags, "--set", d.name+"="+d.text)
	}
	if err := e.wrapCommand(c, bin, flags); err != nil {
		return err
	}
	wrapExecs(c, slices.Concat([]string{bin}, flags, []string{"--"}))
	return nil
}

// launcher is this node's lock-exec in the container: the one that stands there
// already, or else one that is mounted for it.
func launcher(spec *v1.PodSpec, c *v1.Container, binDir string) (string, error) {
	if _, launched := launchLine(c); launched {
		if host, err := hostFile(spec, c, c.Command[0], ""); err == nil && host == path.Join(binDir, lockExec) {
			return c.Command[0], nil
		}
	}
	return path.Join(binMount, lockExec), addVolume(spec, c, binVolume, binDir, binMount)
}

// checkMounts: what the kubelet makes a path of stands in the pod's status, and our
// volumes must neither hide the pod's nor be hidden.
func (e *environment) checkMounts(c *v1.Container) error {
	for i, m := range c.VolumeMounts {
		at := fmt.Sprintf("%s.volumeMounts[%d]", e.at, i)
		if e.hides(m.SubPathExpr) {
			return refused(Unsupported, at+".subPathExpr", "it is made of a value that must not stand in a manifest; use subPath")
		}
		if dir := path.Clean(m.MountPath); within(dir, ownMount) || within(ownMount, dir) {
			return refused(Unsupported, at+".mountPath", "%s is needed for the environment; choose another path", ownMount)
		}
	}
	return nil
}

// imageCommand writes down the command that a container takes from its image, by the
// rules of the runtime (containerd v2.4.2, internal/cri/opts/spec_opts.go,
// WithProcessArgs). The kubelet would expand it, but not where it stands now.
func (e *environment) imageCommand(c *v1.Container, images map[string]Image) error {
	if len(c.Command) > 0 {
		return nil
	}
	image, known := images[c.Image]
	if !known {
		return refused(Unsupported, e.at+".command", "%s has to start the program, to set variables that must not stand in a manifest, and the image's entrypoint is not known; write it here", lockExec)
	}
	entrypoint := image.Entrypoint
	if slices.Equal(entrypoint, []string{""}) {
		entrypoint = nil
	}
	c.Command = escaped(entrypoint)
	if len(c.Args) == 0 {
		c.Args = escaped(image.Command)
	}
	if len(c.Command)+len(c.Args) == 0 {
		return refused(Unsupported, e.at+".command", "neither the pod nor the image names a program; write it here")
	}
	return nil
}

// wrapCommand puts lock-exec before the program, or adds flags to the lock-exec that
// stands there. Where a word of the program's needs a hidden variable, lock-exec
// expands them all, and the kubelet none.
func (e *environment) wrapCommand(c *v1.Container, bin string, flags []string) error {
	words, first := slices.Concat(c.Command, c.Args), 0
	line, launched := launchLine(c)
	if launched {
		first = len(words) - len(line.rest)
	}
	for i, word := range words[:min(first+1, len(words))] {
		if e.hides(word) {
			return refused(Unsupported, e.wordAt(c, i), "it is made of a value that must not stand in a manifest; only arguments of the program may be")
		}
	}
	if slices.ContainsFunc(words[first:], e.hides) {
		flags = append(slices.Clone(flags), "--expand")
		for i := first; i < len(words); i++ {
			words[i] = expand.Escape(e.template(words[i]))
		}
	}
	if len(flags) > 2 && (line.makes || len(line.envDirs) > 0) {
		return refused(Unsupported, e.at+".command", "flags of %s set variables, of which others that must not stand in a manifest, or arguments, are made; set them in the pod", lockExec)
	}
	command, args := words[:len(c.Command):len(c.Command)], words[len(c.Command):]
	if launched {
		c.Command = slices.Concat([]string{bin}, escaped(flags), command[1:])
	} else {
		c.Command = slices.Concat([]string{bin}, escaped(flags), []string{"--"}, command)
	}
	if c.Args = nil; len(args) > 0 {
		c.Args = args
	}
	return nil
}

// wordAt is the path of one word of command and arguments.
func (e *environment) wordAt(c *v1.Container, i int) string {
	if i < len(c.Command) {
		return fmt.Sprintf("%s.command[%d]", e.at, i)
	}
	return fmt.Sprintf("%s.args[%d]", e.at, i-len(c.Command))
}

// wrapExecs: what the kubelet has executed in a container gets the variables of its
// manifest. A check of a lock asks over the network, unless it executes something
// itself. The kubelet expands the command of a probe, but not that of a hook.
func wrapExecs(c *v1.Container, wrapper []string) {
	for _, p := range []*v1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if p == nil || p.Exec == nil {
			continue
		}
		if line, ok := checkLine(p.Exec.Command); !ok || len(line.rest) > 0 && line.rest[0] == "exec" {
			p.Exec.Command = slices.Concat(escaped(wrapper), p.Exec.Command)
		}
	}
	if c.Lifecycle == nil {
		return
	}
	for _, h := range []*v1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
		if h != nil && h.Exec != nil {
			h.Exec.Command = slices.Concat(wrapper, h.Exec.Command)
		}
	}
}

// freezeProbes writes down what the kubelet made of the parent's exec probes, where
// it would make something else of the checkpoint's. There it knows no more than what
// stands in the pod: an entry's text as it is, and a reference as nothing
// (pkg/kubelet/container/helpers.go, ExpandContainerCommandOnlyStatic, v1.37.2).
func freezeProbes(c *v1.Container, parent []v1.EnvVar) {
	then, now := static(parent), static(c.Env)
	for _, p := range []*v1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if p == nil || p.Exec == nil {
			continue
		}
		for i, word := range p.Exec.Command {
			if was := expand.Text(word, then); was != expand.Text(word, now) {
				p.Exec.Command[i] = expand.Escape(was)
			}
		}
	}
}

func static(env []v1.EnvVar) func(name string) (string, bool) {
	values := map[string]string{}
	for _, e := range env {
		values[e.Name] = e.Value
	}
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}

// addVolume mounts a directory of the host, of the payload if dir is "".
func addVolume(spec *v1.PodSpec, c *v1.Container, name, dir, at string) error {
	i := slices.IndexFunc(spec.Volumes, func(v v1.Volume) bool { return v.Name == name })
	switch {
	case i < 0:
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			HostPath: &v1.HostPathVolumeSource{Path: dir, Type: new(v1.HostPathDirectory)}}})
	case dir == "" || spec.Volumes[i].HostPath == nil || spec.Volumes[i].HostPath.Path != dir:
		return refused(Unsupported, fmt.Sprintf("spec.volumes[%d].name", i), "the name is needed for the environment; choose another one")
	}
	c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name, ReadOnly: true, MountPath: at})
	return nil
}

func escaped(words []string) []string {
	var all []string
	for _, word := range words {
		all = append(all, expand.Escape(word))
	}
	return all
}
