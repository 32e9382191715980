package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// pullPolicy is for which images the kubelet's configuration wants a pod to have the
// credentials of the pull (k8s.io/kubelet v0.37.2, config/v1beta1/types.go).
type pullPolicy struct {
	FeatureGates map[string]bool `json:"featureGates"`
	Policy       string          `json:"imagePullCredentialsVerificationPolicy"`
	Allowlist    []string        `json:"preloadedImagesVerificationAllowlist"`
}

// The feature is on by default since 1.35; before, there are no records where it is
// off (k8s.io/kubernetes v1.37.2, pkg/features/kube_features.go).
const verifyGate = "KubeletEnsureSecretPulledImages"

// readPullPolicy reads the configuration where kubeadm writes it. One that stands
// elsewhere counts as the default.
func readPullPolicy(path string) (pullPolicy, error) {
	var policy pullPolicy
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return policy, nil
	}
	if err == nil {
		err = yaml.Unmarshal(data, &policy)
	}
	if err != nil {
		return policy, fmt.Errorf("the kubelet's configuration %s: %w", path, err)
	}
	return policy, nil
}

// verifies tells whether a pod needs the credentials of an image, which the kubelet
// has pulled or not (k8s.io/kubernetes v1.37.2,
// pkg/kubelet/images/pullmanager/image_pull_policies.go).
func (p pullPolicy) verifies(image string, pulled bool) bool {
	if on, set := p.FeatureGates[verifyGate]; set && !on {
		return false
	}
	switch p.Policy {
	case "NeverVerify":
		return false
	case "AlwaysVerify":
		return true
	case "NeverVerifyAllowlistedImages":
		name := repository(image)
		return !slices.ContainsFunc(p.Allowlist, func(pattern string) bool {
			prefix, wild := strings.CutSuffix(pattern, "*")
			return name == pattern || wild && strings.HasPrefix(name, prefix)
		})
	}
	return pulled // NeverVerifyPreloadedImages, the default
}
