package snapshot

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// addProjected does what the kubelet's collectData does
// (pkg/volume/projected/projected.go, v1.37.2): a later source takes the place
// of an earlier one's file.
func (t *tree) addProjected(p *v1.ProjectedVolumeSource, from source) error {
	t.mode, t.user = modeOf(p.DefaultMode, v1.ProjectedVolumeSourceDefaultMode), p.DefaultUser
	for i, s := range p.Sources {
		if err := t.addSource(s, from, fmt.Sprintf("%s.projected.sources[%d]", t.at, i)); err != nil {
			return err
		}
	}
	return nil
}

// ownProjected tells whether the kubelet may write all of the files itself.
func ownProjected(p *v1.ProjectedVolumeSource, from source, at string) (bool, error) {
	for i, s := range p.Sources {
		if s.DownwardAPI == nil {
			return false, nil
		}
		own, err := ownDownward(s.DownwardAPI.Items, from, fmt.Sprintf("%s.sources[%d].downwardAPI", at, i))
		if !own || err != nil {
			return false, err
		}
	}
	return true, nil
}

// asDownward makes the same volume of the downward API alone.
func asDownward(p *v1.ProjectedVolumeSource) *v1.DownwardAPIVolumeSource {
	d := &v1.DownwardAPIVolumeSource{DefaultMode: p.DefaultMode, DefaultUser: p.DefaultUser}
	for _, s := range p.Sources {
		if s.DownwardAPI != nil {
			d.Items = append(d.Items, s.DownwardAPI.Items...)
		}
	}
	return d
}

func (t *tree) addSource(s v1.VolumeProjection, from source, at string) error {
	switch {
	case set(s) != 1:
		return refused(Unsupported, at, "it names no source that this version knows, or several; name one")
	case s.Secret != nil:
		return t.addObject(selection{Secret, s.Secret.Name, isTrue(s.Secret.Optional), s.Secret.Items, at + ".secret", ".name"}, from.objects)
	case s.ConfigMap != nil:
		return t.addObject(selection{ConfigMap, s.ConfigMap.Name, isTrue(s.ConfigMap.Optional), s.ConfigMap.Items, at + ".configMap", ".name"}, from.objects)
	case s.DownwardAPI != nil:
		return t.addDownward(s.DownwardAPI.Items, from, at+".downwardAPI")
	case s.ServiceAccountToken != nil:
		return t.addToken(s.ServiceAccountToken, from, at+".serviceAccountToken")
	}
	return nil // the fates have refused the others
}

// addToken: the file of a token is for one user alone, where it is known which one
// that is, or for the pod's group.
func (t *tree) addToken(s *v1.ServiceAccountTokenProjection, from source, at string) error {
	ref := tokenRef(from.pod, s)
	token, found := from.objects.Tokens[ref]
	if !found {
		return refused(MissingToken, at, "there is no ServiceAccount %q to get a token of; create it, or set automountServiceAccountToken: false", ref.ServiceAccount)
	}
	user := cmp.Or(s.User, t.user, t.own.runAs)
	mode := int32(t.mode)
	if user != nil || t.own.grouped {
		mode = 0o600
	}
	return t.add(at+".path", s.Path, []byte(token), &mode, user)
}

func tokenRef(pod *v1.Pod, s *v1.ServiceAccountTokenProjection) TokenRef {
	return TokenRef{cmp.Or(pod.Spec.ServiceAccountName, "default"), s.Audience}
}

func hasToken(v v1.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s v1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
}

// accountVolume begins the name of the volume that the API server's admission adds
// (k8s.io/kubernetes v1.37.2, plugin/pkg/admission/serviceaccount/admission.go).
const accountVolume = "kube-api-access"

// nameAccountVolume takes from that volume what is random in its name: else each
// new parent would be another pod.
func nameAccountVolume(spec *v1.PodSpec) {
	var random []string
	for _, v := range spec.Volumes {
		switch {
		case v.Name == accountVolume:
			return
		case generatedFrom(accountVolume, v.Name) && hasToken(v):
			random = append(random, v.Name)
		}
	}
	if len(random) != 1 {
		return
	}
	for i := range spec.Volumes {
		if spec.Volumes[i].Name == random[0] {
			spec.Volumes[i].Name = accountVolume
		}
	}
	for _, c := range allContainers(spec) {
		for i := range c.VolumeMounts {
			if c.VolumeMounts[i].Name == random[0] {
				c.VolumeMounts[i].Name = accountVolume
			}
		}
	}
}
