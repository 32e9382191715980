package lab

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// apiURL is where everything on the node finds the API server.
const apiURL = "https://127.0.0.1:6443"

// pki is the cluster's certificate authority and what it has issued, by file
// name: NAME.crt and NAME.key, and for a user NAME.conf with both in it.
type pki struct {
	ca    *x509.Certificate
	key   *ecdsa.PrivateKey
	files map[string][]byte
}

// subject is whom a certificate is for, and where it is served.
type subject struct {
	user  string
	group string
	names []string
	ips   []net.IP
}

// newPKI makes a new cluster's.
func newPKI(node string, ip net.IP) (*pki, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	p := &pki{key: key, files: map[string][]byte{}}
	template := certificate(subject{user: "kubernetes"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	template.ExtKeyUsage = nil
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate authority: %w", err)
	}
	if p.ca, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	p.files["ca.crt"] = pemOf("CERTIFICATE", der)
	loopback := net.IPv4(127, 0, 0, 1)
	users := map[string]subject{
		"admin":                   {user: "admin", group: "system:masters"},
		"kubelet":                 {user: "system:node:" + node, group: "system:nodes"},
		"kube-controller-manager": {user: "system:kube-controller-manager"},
		"kube-scheduler":          {user: "system:kube-scheduler"},
	}
	servers := map[string]subject{
		"apiserver": {user: "kube-apiserver", ips: []net.IP{loopback, ip, net.IPv4(10, 96, 0, 1)}, names: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		}},
		"apiserver-kubelet-client": {user: "kube-apiserver-kubelet-client", group: "system:masters"},
		"kubelet-server":           {user: node, names: []string{node}, ips: []net.IP{ip, loopback}},
	}
	for name, s := range servers {
		if err := p.issue(name, s); err != nil {
			return nil, fmt.Errorf("issue %s: %w", name, err)
		}
	}
	for name, s := range users {
		if err := errors.Join(p.issue(name, s), p.addKubeconfig(name)); err != nil {
			return nil, fmt.Errorf("issue %s: %w", name, err)
		}
	}
	return p, p.serviceAccounts()
}

func certificate(s subject) *x509.Certificate {
	name := pkix.Name{CommonName: s.user}
	if s.group != "" {
		name.Organization = []string{s.group}
	}
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // never fails, crypto/rand
	return &x509.Certificate{
		SerialNumber: serial, Subject: name, DNSNames: s.names, IPAddresses: s.ips,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
}

func (p *pki) issue(name string, s subject) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, certificate(s), p.ca, key.Public(), p.key)
	if err != nil {
		return err
	}
	p.files[name+".crt"] = pemOf("CERTIFICATE", der)
	return p.addKey(name+".key", key)
}

// serviceAccounts makes the pair that tokens are signed and checked with.
func (p *pki) serviceAccounts() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	p.files["sa.pub"] = pemOf("PUBLIC KEY", der)
	return p.addKey("sa.key", key)
}

func (p *pki) addKey(name string, key crypto.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	p.files[name] = pemOf("PRIVATE KEY", der)
	return nil
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// addKubeconfig makes one file that needs no other, for the user of a certificate.
func (p *pki) addKubeconfig(user string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: apiURL, CertificateAuthorityData: p.files["ca.crt"]}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{
		ClientCertificateData: p.files[user+".crt"], ClientKeyData: p.files[user+".key"],
	}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: user}
	config.CurrentContext = "lab"
	text, err := clientcmd.Write(*config)
	p.files[user+".conf"] = text
	return err
}

// write puts files into dir; to each name there, that of the file here.
func (p *pki) write(dir string, names map[string]string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for to, from := range names {
		if err := os.WriteFile(filepath.Join(dir, to), p.files[from], 0o600); err != nil {
			return err
		}
	}
	return nil
}
