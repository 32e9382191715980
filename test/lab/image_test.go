package lab

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// read returns an archive's entries by name.
func read(t *testing.T, archive []byte) (map[string][]byte, map[string]*tar.Header) {
	t.Helper()
	data, headers := map[string][]byte{}, map[string]*tar.Header{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return data, headers
		}
		require.NoError(t, err)
		headers[h.Name] = h
		data[h.Name], err = io.ReadAll(r)
		require.NoError(t, err)
	}
}

func TestImageIsWhatDockerSaves(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(program, []byte("machine code"), 0o600))
	img := image{
		Ref: "lab.local/thing:1", Entry: []string{"/usr/bin/thing"},
		Files: []imageFile{{Path: "/usr/bin/thing", From: program}, {Path: "/usr/bin/other", Link: "thing"}},
	}
	var first, second bytes.Buffer
	require.NoError(t, img.write(&first, "amd64"))
	require.NoError(t, img.write(&second, "amd64"))
	require.Equal(t, first.Bytes(), second.Bytes(), "equal programs make equal archives")

	files, _ := read(t, first.Bytes())
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	require.NoError(t, json.Unmarshal(files["manifest.json"], &manifest))
	require.Equal(t, []string{"lab.local/thing:1"}, manifest[0].RepoTags)
	var config struct {
		Config struct{ Entrypoint []string }
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	require.NoError(t, json.Unmarshal(files[manifest[0].Config], &config))
	require.Equal(t, img.Entry, config.Config.Entrypoint)

	layer := files[manifest[0].Layers[0]]
	sum := sha256.Sum256(layer)
	require.Equal(t, []string{"sha256:" + hex.EncodeToString(sum[:])}, config.Rootfs.DiffIDs)
	contents, headers := read(t, layer)
	require.Equal(t, "machine code", string(contents["usr/bin/thing"]))
	require.Equal(t, int64(0o755), headers["usr/bin/thing"].Mode)
	require.Equal(t, "thing", headers["usr/bin/other"].Linkname)
	require.Contains(t, headers, "proc/", "a runtime mounts on it")
}

func TestImageOfAProgramThatIsAbsentFails(t *testing.T) {
	img := image{Ref: "lab.local/thing:1", Files: []imageFile{{Path: "/thing", From: "/nowhere/thing"}}}
	require.ErrorIs(t, img.write(io.Discard, "amd64"), os.ErrNotExist)
}
