package checkpoint

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// Expiry is what ends first of the credentials that a generation holds.
type Expiry struct {
	File string    `json:"file"` // volume/path
	At   time.Time `json:"at"`
	life time.Duration
}

// contents are the credentials in the files of a workload's newest generation. They
// are read from the disk once, and of the files nothing else is kept.
type contents struct {
	seq         int64
	tokens      []keptToken
	token       *Expiry // of the first that ends; nil: there is none
	certificate *Expiry
	err         error
}

// contents are those of the newest generation; the zero value where there is none.
func (o *observer) contents(key store.Key) contents {
	record, _ := o.store.Workload(key)
	if len(record.Generations) == 0 {
		return contents{}
	}
	seq := record.Generations[0].Seq
	if c, ok := o.content[key]; ok && c.seq == seq {
		return c
	}
	c := contents{seq: seq}
	volumes, err := o.store.Contents(key, seq)
	c.err = err
	for _, v := range volumes {
		for _, f := range v.Files {
			c.read(v.Name+"/"+f.Path, f.Data)
		}
	}
	o.content[key] = c
	return c
}

func (c *contents) read(file string, data []byte) {
	for _, token := range tokensIn(data) {
		claims := api.ClaimsOf(token)
		if !claims.Expires.IsZero() {
			c.token = first(c.token, Expiry{file, claims.Expires, claims.Expires.Sub(claims.Issued)})
		}
		if claims.NodeUID != "" {
			c.tokens = append(c.tokens, keptToken{token, claims})
		}
	}
	if certificate := endOf(certificatesIn(data)); certificate != nil {
		c.certificate = first(c.certificate, Expiry{file, certificate.NotAfter, certificate.NotAfter.Sub(certificate.NotBefore)})
	}
}

func first(e *Expiry, other Expiry) *Expiry {
	if e == nil || other.At.Before(e.At) {
		return &other
	}
	return e
}

// A kubeconfig has credentials in lines of its own.
var (
	tokenKey        = []byte("token:")
	certificateKeys = [][]byte{[]byte("client-certificate-data:"), []byte("certificate-authority-data:")}
)

// tokensIn are the JSON web tokens that a file is, or that a kubeconfig holds.
func tokensIn(data []byte) []string {
	if len(data) > 1<<20 || bytes.IndexByte(data, '.') < 0 {
		return nil
	}
	if text := bytes.TrimSpace(data); isToken(text) {
		return []string{string(text)}
	}
	var tokens []string
	for line := range bytes.Lines(data) {
		if value, ok := bytes.CutPrefix(bytes.TrimSpace(line), tokenKey); ok {
			if value = bytes.Trim(value, ` "'`); isToken(value) {
				tokens = append(tokens, string(value))
			}
		}
	}
	return tokens
}

// isToken: three parts of base64url (RFC 7519, section 3.1).
func isToken(text []byte) bool {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
	return bytes.Count(text, []byte(".")) == 2 && strings.Trim(string(text), alphabet) == ""
}

// certificatesIn are those in PEM, and those that a kubeconfig holds.
func certificatesIn(data []byte) []*x509.Certificate {
	var all []*x509.Certificate
	if bytes.Contains(data, []byte("-----BEGIN CERTIFICATE-----")) {
		for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
			if block.Type != "CERTIFICATE" {
				continue
			}
			if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
				all = append(all, certificate)
			}
		}
		return all
	}
	for _, key := range certificateKeys {
		for rest := data; ; {
			_, after, found := bytes.Cut(rest, key)
			if !found {
				break
			}
			line, _, _ := bytes.Cut(after, []byte("\n"))
			if text, err := base64.StdEncoding.DecodeString(string(bytes.Trim(line, " \r\"'"))); err == nil {
				all = append(all, certificatesIn(text)...)
			}
			rest = after
		}
	}
	return all
}

// endOf is the certificate with which a file ends: the first one, but of a bundle
// of authorities alone the last, since the others go on.
func endOf(all []*x509.Certificate) *x509.Certificate {
	var end, bundle *x509.Certificate
	authorities := true
	for _, c := range all {
		authorities = authorities && c.IsCA
		if end == nil || c.NotAfter.Before(end.NotAfter) {
			end = c
		}
		if bundle == nil || c.NotAfter.After(bundle.NotAfter) {
			bundle = c
		}
	}
	if authorities {
		return bundle
	}
	return end
}

// expiring tells of credentials that have ended, or are about to.
func (c contents) expiring(now time.Time) []string {
	var findings []string
	say := func(name, what string, e *Expiry, help string) {
		switch {
		case e == nil || e.At.Sub(now) >= min(nearEnd, e.life/10):
		case now.Before(e.At):
			findings = append(findings, fmt.Sprintf("%s: the %s in %s of generation %d ends at %s: %s", name, what, e.File, c.seq, utc(e.At), help))
		default:
			findings = append(findings, fmt.Sprintf("%s: the %s in %s of generation %d has ended at %s, and a checkpoint starts all the same: %s", name, what, e.File, c.seq, utc(e.At), help))
		}
	}
	say("TokenExpires", "token", c.token, "one of the Node's is renewed while the API server can be asked, another one where it comes from")
	say("CertificateExpires", "certificate", c.certificate, "renew it in the Secret or ConfigMap that it comes from")
	if c.err != nil {
		findings = append(findings, "what ends is not known: "+c.err.Error())
	}
	return findings
}
