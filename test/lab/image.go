package lab

import (
	"archive/tar"
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"
)

// image is a container image of one layer: programs and links, nothing else.
type image struct {
	Ref   string // with a tag that is not latest, which would always be pulled
	Files []imageFile
	Entry []string
}

// imageFile is a program copied from From, or a link to Link.
type imageFile struct{ Path, From, Link string }

// epoch makes two archives of the same programs equal.
var epoch = time.Unix(0, 0)

// write makes the archive that "docker save" would, which ctr imports. The
// layer is spooled to a file first, since its digest stands before it.
func (i image) write(out io.Writer, arch string) error {
	layer, err := os.CreateTemp("", "lab-layer-*")
	if err != nil {
		return err
	}
	defer os.Remove(layer.Name())
	defer layer.Close()
	digest, err := i.writeLayer(layer)
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": arch, "os": "linux", "created": epoch.UTC(),
		"config": map[string]any{"Env": []string{"PATH=/usr/local/bin"}, "Entrypoint": i.Entry},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest}},
	})
	if err != nil {
		return err
	}
	sum := sha256.Sum256(config)
	configName, layerName := hex.EncodeToString(sum[:])+".json", digest+"/layer.tar"
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": configName, "RepoTags": []string{i.Ref}, "Layers": []string{layerName},
	}})
	if err != nil {
		return err
	}
	size, err := layer.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return err
	}
	t := tarWriter{tar.NewWriter(out)}
	t.file("manifest.json", 0o644, int64(len(manifest)), strings.NewReader(string(manifest)), &err)
	t.file(configName, 0o644, int64(len(config)), strings.NewReader(string(config)), &err)
	t.dir(digest, &err)
	t.file(layerName, 0o644, size, layer, &err)
	if err != nil {
		return err
	}
	return t.Close()
}

func (i image) writeLayer(out io.Writer) (digest string, err error) {
	hash := sha256.New()
	buffer := bufio.NewWriterSize(io.MultiWriter(out, hash), 1<<20)
	t := tarWriter{tar.NewWriter(buffer)}
	made := map[string]bool{".": true, "/": true}
	var mkdir func(string)
	mkdir = func(dir string) {
		if made[dir] {
			return
		}
		mkdir(path.Dir(dir))
		made[dir] = true
		t.dir(dir, &err)
	}
	for _, dir := range []string{"tmp", "etc", "proc", "sys", "dev"} {
		mkdir(dir)
	}
	for _, f := range i.Files {
		name := strings.TrimPrefix(f.Path, "/")
		mkdir(path.Dir(name))
		if f.Link != "" {
			t.link(name, f.Link, &err)
			continue
		}
		t.program(name, f.From, &err)
	}
	if err != nil {
		return "", fmt.Errorf("write layer of %s: %w", i.Ref, err)
	}
	if err := errors.Join(t.Close(), buffer.Flush()); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// tarWriter writes entries without owners and times. Each of its methods does
// nothing once *err is set.
type tarWriter struct{ *tar.Writer }

func (t tarWriter) dir(name string, err *error) {
	t.entry(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}, nil, err)
}

func (t tarWriter) link(name, target string, err *error) {
	t.entry(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil, err)
}

func (t tarWriter) file(name string, mode, size int64, data io.Reader, err *error) {
	t.entry(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size}, data, err)
}

func (t tarWriter) program(name, from string, err *error) {
	if *err != nil {
		return
	}
	f, openErr := os.Open(from)
	if openErr != nil {
		*err = openErr
		return
	}
	defer f.Close()
	info, statErr := f.Stat()
	if statErr != nil {
		*err = statErr
		return
	}
	t.file(name, 0o755, info.Size(), f, err)
}

func (t tarWriter) entry(header tar.Header, data io.Reader, err *error) {
	if *err != nil {
		return
	}
	header.ModTime = epoch
	if *err = t.WriteHeader(&header); *err == nil && data != nil {
		_, *err = io.Copy(t, data)
	}
}
