package snapshot

import (
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

const (
	lockExec  = "lock-exec"
	apiServer = "kube-apiserver"
)

// launch is a container that takes a lock: lock-exec --lock FILE -- PROGRAM.
type launch struct {
	at        string // path of the container in the pod
	container *v1.Container
	bin       string // lock-exec, as the container names it
	file      string // the lock, as the container sees it
	path      string // and on the host
	program   string
}

// servesAPI says whether the guarded program is the API server.
func (l launch) servesAPI() bool { return path.Base(l.program) == apiServer }

// guard holds the pod to the rule of the lock: exactly one container takes
// exactly the annotated one, and its probes know holding from waiting. A pod
// without a lock must neither take one nor serve the API.
func guard(spec *v1.PodSpec, name, lockDir string) error {
	if name == "" {
		return unguarded(spec)
	}
	l, err := findLock(spec)
	if err != nil {
		return err
	}
	if want := path.Join(lockDir, name+".lock"); l.path != want {
		return refused(LockMismatch, l.at+".command", "it takes %s, but the lock of the annotation is %s; make them the same file", l.path, want)
	}
	return l.guardProbes(spec)
}

func unguarded(spec *v1.PodSpec) error {
	for _, c := range allContainers(spec) {
		if _, ok := lockFlags(c.Container); ok {
			return refused(LockMismatch, c.at+".command", "it takes a lock that no annotation names; add %s", AnnotationLock)
		}
		if runsAPIServer(c.Container) {
			return refused(NeedsLock, c.at+".command", "two API servers of one node would erase each other's address; start it by %s and add %s", lockExec, AnnotationLock)
		}
	}
	return nil
}

// runsAPIServer looks at every word of the command line, since a shell or another
// launcher may stand before the program. Flags and URLs with its name start nothing.
func runsAPIServer(c *v1.Container) bool {
	words := slices.Concat(c.Command, c.Args)
	if len(c.Command) == 0 {
		repository, _, _ := strings.Cut(path.Base(c.Image), ":")
		repository, _, _ = strings.Cut(repository, "@")
		words = append([]string{repository}, c.Args...)
	}
	between := func(r rune) bool { return strings.ContainsRune(" \t\n'\"`;&|()", r) }
	return slices.ContainsFunc(strings.FieldsFunc(strings.Join(words, " "), between), func(word string) bool {
		return path.Base(word) == apiServer && !strings.HasPrefix(word, "-") && !strings.Contains(word, "://")
	})
}

// findLock returns the one container that takes a lock.
func findLock(spec *v1.PodSpec) (launch, error) {
	var found []containerAt
	for _, c := range allContainers(spec) {
		if _, ok := lockFlags(c.Container); ok {
			found = append(found, c)
		}
	}
	switch {
	case len(found) == 0:
		return launch{}, refused(LockMismatch, "spec.containers", "no command begins with %s --lock; start the program by it", lockExec)
	case len(found) > 1:
		return launch{}, refused(LockMismatch, found[1].at+".command", "it takes a lock as well as %s; one container must", found[0].at)
	case found[0].init:
		return launch{}, refused(LockMismatch, found[0].at+".command", "an init container takes the lock; the program itself must")
	}
	return readLaunch(spec, found[0])
}

func readLaunch(spec *v1.PodSpec, c containerAt) (launch, error) {
	at := c.at + ".command"
	flags, _ := lockFlags(c.Container)
	if len(flags.locks) != 1 {
		return launch{}, refused(LockMismatch, at, "--lock stands there %d times; give it once", len(flags.locks))
	}
	if len(flags.rest) == 0 {
		return launch{}, refused(LockMismatch, at, "no program follows the flags of %s; add -- and the program", lockExec)
	}
	host, err := hostFile(spec, c.Container, flags.locks[0], at)
	if err != nil {
		return launch{}, err
	}
	return launch{
		at: c.at, container: c.Container,
		bin: c.Command[0], file: flags.locks[0], path: host, program: flags.rest[0],
	}, nil
}

// commandLine is lock-exec's, parted.
type commandLine struct {
	locks   []string // values of --lock
	envDirs []string // values of --env-dir
	flags   []string // the flags without a value, as they stand there
	rest    []string // the program or target, with its arguments
	makes   bool     // variables or arguments of others: --set, --expand
}

// lockFlags reads the command of a container; ok is false if it takes no lock.
func lockFlags(c *v1.Container) (line commandLine, ok bool) {
	line, _ = launchLine(c)
	return line, len(line.locks) > 0
}

// launchLine reads the command of a container; ok is false if it does not start its
// program by lock-exec.
func launchLine(c *v1.Container) (line commandLine, ok bool) {
	words := slices.Concat(c.Command, c.Args)
	if len(c.Command) == 0 || path.Base(words[0]) != lockExec || len(words) > 1 && words[1] == "check" {
		return commandLine{}, false
	}
	return partLine(words[1:]), true
}

// partLine reads words as lock-exec does, by the rules of package flag: one dash
// or two, the value joined by = or next, up to -- or the first word that is no flag.
func partLine(words []string) (line commandLine) {
	for i := 0; i < len(words); i++ {
		name, value, joined := strings.Cut(words[i], "=")
		switch name {
		case "--":
			line.rest = words[i+1:]
			return line
		case "-lock", "--lock", "-env-dir", "--env-dir", "-set", "--set", "-start-window", "--start-window":
			if !joined && i+1 < len(words) {
				i++
				value = words[i]
			}
			switch {
			case strings.HasSuffix(name, "-lock"):
				line.locks = append(line.locks, value)
			case strings.HasSuffix(name, "-env-dir"):
				line.envDirs = append(line.envDirs, value)
			}
			line.makes = line.makes || strings.HasSuffix(name, "-set")
		default:
			if len(name) < 2 || name[0] != '-' {
				line.rest = words[i:]
				return line
			}
			line.flags = append(line.flags, words[i])
			line.makes = line.makes || strings.HasSuffix(name, "-expand")
		}
	}
	return line
}

// hostFile finds the file of the host behind a path in the container.
func hostFile(spec *v1.PodSpec, c *v1.Container, file, at string) (string, error) {
	if !path.IsAbs(file) || strings.Contains(file, "$") {
		return "", refused(LockMismatch, at, "--lock %q is not an absolute path; write it out", file)
	}
	file = path.Clean(file)
	var mount *v1.VolumeMount
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		if within(file, path.Clean(m.MountPath)) && (mount == nil || len(path.Clean(m.MountPath)) > len(path.Clean(mount.MountPath))) {
			mount = m
		}
	}
	if mount == nil {
		return "", refused(LockMismatch, at, "%s is in no volume of the container; mount the host's lock directory", file)
	}
	i := slices.IndexFunc(spec.Volumes, func(v v1.Volume) bool { return v.Name == mount.Name })
	switch {
	case i < 0 || spec.Volumes[i].HostPath == nil || isPayload(spec.Volumes[i]):
		return "", refused(LockMismatch, at, "%s is in the volume %q, which is no hostPath; mount the host's lock directory", file, mount.Name)
	case mount.SubPathExpr != "":
		return "", refused(LockMismatch, at, "%s is below a subPathExpr; mount the host's lock directory itself", file)
	}
	inside := strings.TrimPrefix(file, path.Clean(mount.MountPath))
	return path.Join(spec.Volumes[i].HostPath.Path, mount.SubPath, inside), nil
}

func within(file, dir string) bool {
	return file == dir || dir == "/" || strings.HasPrefix(file, dir+"/")
}

type containerAt struct {
	*v1.Container
	at   string
	init bool
}

func allContainers(spec *v1.PodSpec) []containerAt {
	var all []containerAt
	for i := range spec.InitContainers {
		all = append(all, containerAt{&spec.InitContainers[i], fmt.Sprintf("spec.initContainers[%d]", i), true})
	}
	for i := range spec.Containers {
		all = append(all, containerAt{&spec.Containers[i], fmt.Sprintf("spec.containers[%d]", i), false})
	}
	return all
}
