package kubelet

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// pulledRecord is what the kubelet keeps of an image that it pulled
// (k8s.io/kubelet v0.37.2, config/v1beta1/types.go, ImagePulledRecord; v1alpha1, which
// kubelets before 1.35 write, has the same fields).
type pulledRecord struct {
	APIVersion        string                     `json:"apiVersion"`
	Kind              string                     `json:"kind"`
	LastUpdatedTime   string                     `json:"lastUpdatedTime"`
	ImageRef          string                     `json:"imageRef"`
	CredentialMapping map[string]pullCredentials `json:"credentialMapping"`
}

// pullCredentials are those with which an image was pulled under one name.
type pullCredentials struct {
	KubernetesSecrets         json.RawMessage `json:"kubernetesSecrets"`
	KubernetesServiceAccounts json.RawMessage `json:"kubernetesServiceAccounts"`
	NodePodsAccessible        bool            `json:"nodePodsAccessible"`
}

const (
	recordKind  = "ImagePulledRecord"
	recordAlpha = "kubelet.config.k8s.io/v1alpha1"
	recordBeta  = "kubelet.config.k8s.io/v1beta1"
)

// AsksRegistry tells whether the kubelet would ask the registry again, although the
// image is here, before it starts a pod without credentials from it: a static pod has
// neither imagePullSecrets nor a service account. image is what the pod calls it, id
// what the runtime does. An error means that nobody knows.
//
// Who may use an image of which the kubelet has a record is who pulled it, or everybody
// where that took no credentials of a pod. One without a record was not pulled by the
// kubelet (k8s.io/kubernetes v1.37.2,
// pkg/kubelet/images/pullmanager/{image_pull_manager,fs_pullrecords}.go).
func AsksRegistry(kubeletDir, image, id string) (bool, error) {
	policy, err := readPullPolicy(filepath.Join(kubeletDir, "config.yaml"))
	if err != nil || !policy.verifies(image, true) {
		return false, err
	}
	record, err := readPulled(filepath.Join(kubeletDir, "image_manager", "pulled", recordFile(id)))
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && record.ImageRef != id:
		return policy.verifies(image, false), pulling(filepath.Join(kubeletDir, "image_manager", "pulling", recordFile(image)))
	case err != nil:
		return false, fmt.Errorf("the kubelet's pull record of %s: %w", image, err)
	}
	return record.closed(image)
}

func readPulled(path string) (pulledRecord, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return pulledRecord{}, err
	}
	var record pulledRecord
	// The kubelet is as strict: what a newer one added may change what the rest means.
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&record); err != nil {
		return pulledRecord{}, fmt.Errorf("decode %s: %w", path, err)
	}
	if record.Kind != recordKind || record.APIVersion != recordAlpha && record.APIVersion != recordBeta {
		return pulledRecord{}, fmt.Errorf("decode %s: unknown kind %q of %q", path, record.Kind, record.APIVersion)
	}
	return record, nil
}

// pulling: an image of which there is but the intent to pull it becomes, when the
// kubelet starts next, one with a record and without any credentials.
func pulling(path string) error {
	switch _, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%s says that the kubelet pulls the image, or was interrupted at it", path)
}

// recordFile is the name of the record of an image.
func recordFile(of string) string { return fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(of))) }

// closed tells whether the image is for some pods alone under the name that the pod
// uses, without tag and digest. Earlier kubelets write the name with the registry that
// it stands for, later ones as it is in the pod, and each looks for its own spelling
// alone (k8s.io/kubernetes v1.34.4, image_pull_manager.go, and v1.37.2,
// image_pull_policies.go, trimImageTagDigest).
func (r pulledRecord) closed(image string) (bool, error) {
	name := repository(image)
	if c, ok := r.CredentialMapping[name]; ok {
		return !c.NodePodsAccessible, nil
	}
	c := r.CredentialMapping[normalized(name)]
	if c.NodePodsAccessible && r.APIVersion == recordBeta {
		return false, fmt.Errorf("the kubelet's pull record of %s names it %s, which not every version looks for", image, normalized(name))
	}
	return !c.NodePodsAccessible, nil
}

// repository is the name of an image without tag and digest.
func repository(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	return name
}

// normalized is a repository with the registry that is meant where it names none
// (github.com/distribution/reference v0.6.0, normalize.go).
func normalized(repository string) string {
	domain, rest, ok := strings.Cut(repository, "/")
	switch {
	case !ok || domain != "localhost" && !strings.ContainsAny(domain, ".:") && strings.ToLower(domain) == domain:
		domain, rest = "docker.io", repository
	case domain == "index.docker.io":
		domain = "docker.io"
	}
	if domain == "docker.io" && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	return domain + "/" + rest
}
