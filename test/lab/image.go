package lab

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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

// write makes the archive that "docker save" would, which ctr imports. Archives
// of equal programs are equal. The layer is made twice, since its digest and
// its size stand before it.
func (i image) write(out io.Writer, arch string) error {
	hash, size := sha256.New(), new(counter)
	if err := i.writeLayer(io.MultiWriter(hash, size)); err != nil {
		return err
	}
	layer := hex.EncodeToString(hash.Sum(nil))
	config, err := json.Marshal(map[string]any{
		"architecture": arch, "os": "linux", "created": epoch.UTC(),
		"config": map[string]any{"Env": []string{"PATH=/usr/local/bin"}, "Entrypoint": i.Entry},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layer}},
	})
	if err != nil {
		return err
	}
	sum := sha256.Sum256(config)
	configName, layerName := hex.EncodeToString(sum[:])+".json", layer+"/layer.tar"
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": configName, "RepoTags": []string{i.Ref}, "Layers": []string{layerName},
	}})
	if err != nil {
		return err
	}
	t := &tarWriter{Writer: tar.NewWriter(out)}
	t.file("manifest.json", 0o644, int64(len(manifest)), bytes.NewReader(manifest))
	t.file(configName, 0o644, int64(len(config)), bytes.NewReader(config))
	t.dir(layer)
	t.header(tar.Header{Typeflag: tar.TypeReg, Name: layerName, Mode: 0o644, Size: int64(*size)})
	if t.err == nil {
		t.err = i.writeLayer(t)
	}
	return t.end()
}

// writeLayer writes the image's file system as an archive.
func (i image) writeLayer(out io.Writer) error {
	t := &tarWriter{Writer: tar.NewWriter(out)}
	made := map[string]bool{".": true}
	var mkdir func(string)
	mkdir = func(dir string) {
		if made[dir] {
			return
		}
		mkdir(path.Dir(dir))
		made[dir] = true
		t.dir(dir)
	}
	for _, dir := range []string{"tmp", "etc", "proc", "sys", "dev"} {
		mkdir(dir)
	}
	for _, f := range i.Files {
		name := strings.TrimPrefix(f.Path, "/")
		mkdir(path.Dir(name))
		if f.Link != "" {
			t.header(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: f.Link, Mode: 0o777})
			continue
		}
		t.program(name, f.From)
	}
	if err := t.end(); err != nil {
		return fmt.Errorf("write layer of %s: %w", i.Ref, err)
	}
	return nil
}

// epoch stands for all times.
var epoch = time.Unix(0, 0)

// tarWriter writes entries without owners and times. After the first error it
// does nothing, and end returns that error.
type tarWriter struct {
	*tar.Writer
	err error
}

func (t *tarWriter) header(h tar.Header) {
	if h.ModTime = epoch; t.err == nil {
		t.err = t.WriteHeader(&h)
	}
}

func (t *tarWriter) dir(name string) {
	t.header(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755})
}

func (t *tarWriter) file(name string, mode, size int64, data io.Reader) {
	t.header(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size})
	if t.err == nil {
		_, t.err = io.Copy(t, data)
	}
}

func (t *tarWriter) program(name, from string) {
	f, err := os.Open(from)
	if err != nil {
		t.fail(err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.fail(err)
		return
	}
	t.file(name, 0o755, info.Size(), f)
}

func (t *tarWriter) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

func (t *tarWriter) end() error {
	if t.err == nil {
		t.err = t.Close()
	}
	return t.err
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
