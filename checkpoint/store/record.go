package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"
)

// Format is the newest that this package knows, and the one that it writes.
const Format = 1

// ErrNewerFormat is the error of a store that a newer daemon wrote.
var ErrNewerFormat = errors.New("newer format")

// errBad is why a file is not believed.
type errBad string

func (e errBad) Error() string { return string(e) }

// record is the body of generations/<seq>.json.
type record struct {
	Namespace string            `json:"namespace"`
	Workload  string            `json:"workload"`
	Seq       int64             `json:"seq"`
	Pod       json.RawMessage   `json:"pod"`
	Payloads  map[string]string `json:"payloads"`
	Source    Source            `json:"source"`
	Written   time.Time         `json:"written"`
}

// frame is what stands around every body. All formats to come must have it, or
// else an older daemon takes a newer file for a bad one.
type frame struct {
	Format int             `json:"format"`
	Kind   string          `json:"kind"`
	Length int             `json:"length"` // of the body
	SHA256 string          `json:"sha256"` // of everything else
	Body   json.RawMessage `json:"body"`
}

// seal returns the bytes of a file. The body must be something that marshals.
func seal(kind string, body any) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	return bytesOf(Format, kind, data), nil
}

func bytesOf(format int, kind string, body []byte) []byte {
	sum := sha256.New()
	fmt.Fprintf(sum, "%d %s %d\n%s", format, kind, len(body), body)
	return fmt.Appendf(nil, `{"format":%d,"kind":%q,"length":%d,"sha256":"%x","body":%s}`+"\n",
		format, kind, len(body), sum.Sum(nil), body)
}

// unseal reads what seal made. A body whose every byte is not as it was sealed
// is never looked at.
func unseal(kind string, data []byte, body any) error {
	var f frame
	if err := json.Unmarshal(data, &f); err != nil {
		return errBad("it is no record")
	}
	// Every byte of the file follows from format, kind and body.
	if !bytes.Equal(data, bytesOf(f.Format, kind, f.Body)) {
		return errBad("its checksum is wrong")
	}
	if f.Format > Format {
		return fmt.Errorf("it has format %d and this daemon knows formats up to %d: "+
			"run the version that wrote it, or export there and import here: %w", f.Format, Format, ErrNewerFormat)
	}
	if err := json.Unmarshal(f.Body, body); err != nil || f.Format != Format {
		return errBad("it is no record of this daemon")
	}
	return nil
}

// maxEIO is how often one file gives an I/O error before it counts as bad.
const maxEIO = 3

// isBad tells a file that will not get better from one that could not be read now.
// An I/O error may be either, a worn sector or a cable; one that stays is bad.
func (s *Store) isBad(err error) bool {
	if errors.Is(err, syscall.EIO) {
		s.eio[err.Error()]++
		return s.giveUp || s.eio[err.Error()] >= maxEIO
	}
	var bad errBad
	return errors.As(err, &bad) || errors.Is(err, fs.ErrNotExist) ||
		errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOTDIR)
}

// compact returns a pod in the one spelling that a record keeps.
func compact(pod json.RawMessage) (json.RawMessage, error) {
	data, err := json.Marshal(pod)
	if err != nil {
		return nil, fmt.Errorf("encode pod: %w", err)
	}
	if data[0] != '{' {
		return nil, errors.New("encode pod: it is no JSON object")
	}
	return data, nil
}

func digest(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }
