package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pod-checkpointer/pod-checkpointer/lock/expand"
)

// program returns the command line to be executed and its environment.
func (a launchArgs) program(env []string) (argv, full []string, err error) {
	full, err = withDirs(env, a.envDirs)
	if err != nil {
		return nil, nil, err
	}
	for _, entry := range a.sets {
		name, text, _ := strings.Cut(entry, "=")
		full = with(full, name, expand.Text(text, lookup(full)))
	}
	if !a.expand {
		return a.argv, full, nil
	}
	for _, word := range a.argv {
		argv = append(argv, expand.Text(word, lookup(full)))
	}
	return argv, full, nil
}

// lookup finds a variable's value; as for os/exec a later entry counts.
func lookup(env []string) func(name string) (string, bool) {
	return func(name string) (value string, ok bool) {
		for _, entry := range env {
			if n, v, _ := strings.Cut(entry, "="); n == name {
				value, ok = v, true
			}
		}
		return value, ok
	}
}

// with returns env with the one entry of the name.
func with(env []string, name, value string) []string {
	rest := slices.DeleteFunc(slices.Clone(env), func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
	return append(rest, name+"="+value)
}

// withDirs returns env and, in place of entries of the same name, one for each
// regular file in dirs. Symbolic links are followed, since the files of a
// Secret volume are links; directories, its "..data" among them, are left out.
// No error tells a value.
func withDirs(env, dirs []string) ([]string, error) {
	set := map[string]string{}
	var names []string
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("read environment: %w", err)
		}
		for _, entry := range entries {
			name := entry.Name()
			file := filepath.Join(dir, name)
			info, err := os.Stat(file)
			if err != nil {
				return nil, fmt.Errorf("read environment: %w", err)
			}
			if !info.Mode().IsRegular() {
				continue
			}
			value, err := readValue(file, name)
			if err != nil {
				return nil, err
			}
			if _, ok := set[name]; !ok {
				names = append(names, name)
			}
			set[name] = value
		}
	}

	var all []string
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		if _, ok := set[name]; !ok {
			all = append(all, entry)
		}
	}
	for _, name := range names {
		all = append(all, name+"="+set[name])
	}
	return all, nil
}

func readValue(file, name string) (string, error) {
	if err := validName(name); err != nil {
		return "", fmt.Errorf("environment variable %q of %s: %w", name, filepath.Dir(file), err)
	}
	value, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read environment: %w", err)
	}
	if bytes.IndexByte(value, 0) >= 0 {
		return "", fmt.Errorf("environment variable %q of %s: the value has a zero byte", name, filepath.Dir(file))
	}
	return string(value), nil
}

// validName allows what Kubernetes allows: printable ASCII without "="
// (IsRelaxedEnvVarName, apimachinery pkg/util/validation/validation.go v0.37.2).
func validName(name string) error {
	for _, r := range name {
		if r < ' ' || r > '~' || r == '=' {
			return errors.New("not a name: printable ASCII without '=' is allowed")
		}
	}
	return nil
}
