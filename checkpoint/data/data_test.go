package data

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// heads are the beginnings of logs of real members, each by "<member>/<file>".
func heads(t testing.TB) map[string][]byte {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/wal.txtar")
	require.NoError(t, err)
	out := map[string][]byte{}
	for _, f := range archive.Files {
		data, err := hex.DecodeString(strings.ReplaceAll(string(f.Data), "\n", ""))
		require.NoError(t, err)
		out[regexp.MustCompile(` \d+\.\d+\.\d+`).ReplaceAllString(f.Name, "")] = data
	}
	require.Len(t, out, 3)
	return out
}

const (
	one   = "etcd member 667880157b8812c8 of cluster dc50b8daae93b3e0"
	other = "etcd member c586219a24d522f3 of cluster c34efca447882491"
	first = "0000000000000000-0000000000000000.wal"
	later = "0000000000000001-0000000000000047.wal"
)

// host is a root directory with a data directory at /var/lib/etcd.
type host struct {
	t    *testing.T
	root string
}

func newHost(t *testing.T) host {
	h := host{t, t.TempDir()}
	h.dir("var/lib/etcd")
	return h
}

func (h host) in(name string) string { return filepath.Join(h.root, name) }

func (h host) dir(name string) {
	h.t.Helper()
	require.NoError(h.t, os.MkdirAll(h.in(name), 0o700))
}

func (h host) file(name string, data []byte) {
	h.t.Helper()
	h.dir(filepath.Dir(name))
	require.NoError(h.t, os.WriteFile(h.in(name), data, 0o600))
}

func (h host) link(target, name string) {
	h.t.Helper()
	require.NoError(h.t, os.Symlink(target, h.in(name)))
}

// log puts the file of a real member into the directory, in front of the space that
// etcd takes in advance.
func (h host) log(member, file string) {
	h.t.Helper()
	head := heads(h.t)[member+"/"+file]
	require.NotEmpty(h.t, head)
	h.file("var/lib/etcd/member/wal/"+file, append(head, make([]byte, 64<<10)...))
}

func (h host) look(dir string) Fingerprint {
	h.t.Helper()
	f, err := Look(h.root, dir)
	require.NoError(h.t, err)
	return f
}

func TestFingerprint(t *testing.T) {
	const dir = "/var/lib/etcd"
	for _, tt := range []struct {
		name string
		make func(host)
		want Fingerprint
	}{
		{"absent", func(h host) { require.NoError(t, os.Remove(h.in(dir))) }, Fingerprint{}},
		{"its parent is absent", func(h host) { require.NoError(t, os.RemoveAll(h.in("var"))) }, Fingerprint{}},
		{"a file", func(h host) { require.NoError(t, os.Remove(h.in(dir))); h.file(dir, nil) }, Fingerprint{}},
		{"below a file", func(h host) { require.NoError(t, os.RemoveAll(h.in("var"))); h.file("var", nil) }, Fingerprint{}},
		{"empty", func(host) {}, Fingerprint{Present: true, Empty: true}},
		{"a new file system", func(h host) { h.dir(dir + "/lost+found") }, Fingerprint{Present: true, Empty: true}},
		{"of another program", func(h host) { h.file(dir+"/base", nil) }, Fingerprint{Present: true}},
		{"a file where etcd has a directory", func(h host) { h.file(dir+"/member", nil) }, Fingerprint{Present: true}},
		{"etcd that has not begun", func(h host) { h.dir(dir + "/member/wal.tmp") }, Fingerprint{Present: true}},
		{"no log yet", func(h host) { h.file(dir+"/member/wal/0.tmp", nil) }, Fingerprint{Present: true}},
		{"etcd", func(h host) { h.log(one, first) }, Fingerprint{Present: true, Etcd: one}},
		{"its newest file counts", func(h host) { h.log(one, first); h.log(other, later) }, Fingerprint{Present: true, Etcd: other}},
		{"files in the making and broken ones do not", func(h host) {
			h.log(one, first)
			h.file(dir+"/member/wal/1.tmp", nil)
			h.file(dir+"/member/wal/"+first+".broken", nil)
		}, Fingerprint{Present: true, Etcd: one}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			tt.make(h)
			require.Equal(t, tt.want, h.look(dir))
		})
	}
}

func TestWhatCanNotBeReadIsNotKnown(t *testing.T) {
	const dir = "/var/lib/etcd"
	for name, damage := range map[string]func(host){
		"empty log": func(h host) { h.file(dir+"/member/wal/"+first, nil) },
		"zeros":     func(h host) { h.file(dir+"/member/wal/"+first, make([]byte, 4096)) },
		"flipped": func(h host) {
			data := heads(t)[one+"/"+first]
			data[40] ^= 1
			h.file(dir+"/member/wal/"+first, data)
		},
		"log is a directory": func(h host) { h.dir(dir + "/member/wal/" + first) },
		"a ring of links": func(h host) {
			require.NoError(t, os.Remove(h.in(dir)))
			h.link("etcd", dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			damage(h)
			_, err := Look(h.root, dir)
			require.ErrorContains(t, err, "data directory /var/lib/etcd: ")
		})
	}
	_, err := Look("/nowhere", dir)
	require.ErrorIs(t, err, os.ErrNotExist, "without a host nothing is known to be absent")
}

func TestLinksLeadWhereTheHostGoes(t *testing.T) {
	h := newHost(t)
	h.log(one, first)
	h.link("/var/lib/etcd", "absolute")
	h.link("var/lib", "relative")
	h.link("../../var/./lib/etcd/", "var/lib/up")
	h.link("/../../../../var/lib/etcd", "above")
	h.link("/absolute", "twice")
	for _, dir := range []string{"/absolute", "/relative/etcd", "/var/lib/up", "/above", "/twice"} {
		assert.Equal(t, Fingerprint{Present: true, Etcd: one}, h.look(dir), dir)
	}
	// The log may be on a disk of its own.
	require.NoError(t, os.Rename(h.in("var/lib/etcd/member/wal"), h.in("wal")))
	h.link("/wal", "var/lib/etcd/member/wal")
	assert.Equal(t, Fingerprint{Present: true, Etcd: one}, h.look("/var/lib/etcd"))
	require.NoError(t, os.Rename(h.in("wal"), h.in("unmounted")))
	assert.Equal(t, Fingerprint{Present: true}, h.look("/var/lib/etcd"))
	// There is a directory of that name outside.
	outside := t.TempDir()
	h.link(outside, "out")
	assert.Equal(t, Fingerprint{}, h.look("/out"))
}

func TestMissing(t *testing.T) {
	etcd, files := Fingerprint{Present: true, Etcd: one}, Fingerprint{Present: true}
	for _, tt := range []struct {
		now  Fingerprint
		held string
		want string
	}{
		{etcd, one, ""},
		{etcd, "", ""},
		{files, "", ""},
		{etcd, other, "it holds " + one + ", and held " + other},
		{files, one, "it holds no etcd member, and held " + one},
		{Fingerprint{Present: true, Empty: true}, "", "it is empty"},
		{Fingerprint{Present: true, Empty: true}, one, "it is empty"},
		{Fingerprint{}, "", "it is absent"},
	} {
		assert.Equal(t, tt.want, tt.now.Missing(tt.held))
	}
}
