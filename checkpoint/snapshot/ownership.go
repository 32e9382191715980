package snapshot

import (
	"io/fs"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// ownership is what the kubelet does to the files of a volume that it fills: they
// are root's, of whoever the container runs as, and an fsGroup gets them as its
// own, to read (pkg/volume/volume_linux.go, changeFilePermission, v1.37.2). It
// does neither to a directory of the host, so that we have to.
type ownership struct {
	gid     int
	grouped bool   // gid is the pod's fsGroup
	runAs   *int64 // the user of every container, if they have one; tokens become that one's
}

func owner(spec *v1.PodSpec) (ownership, error) {
	o := ownership{runAs: runsAs(spec)}
	if spec.SecurityContext == nil || spec.SecurityContext.FSGroup == nil {
		return o, nil
	}
	group := *spec.SecurityContext.FSGroup
	if !isOwner(group) {
		return o, refused(Unsupported, "spec.securityContext.fsGroup", "%d is no group for a file; use 0 to %d", group, math.MaxInt32)
	}
	o.gid, o.grouped = int(group), true
	return o, nil
}

// isOwner: the numbers that the API server allows.
func isOwner(id int64) bool { return id >= 0 && id <= math.MaxInt32 }

// file is one of a user other than root only if the pod says so, of this file or of
// its volume; a kubelet does that from 1.37 on (AtomicWriteVolumeUserFields).
func (o ownership) file(name string, data []byte, mode fs.FileMode, user *int64) File {
	f := File{Path: name, Data: slices.Clone(data), Mode: mode.Perm(), GID: o.gid}
	if o.grouped {
		f.Mode |= 0o440
	}
	if user != nil {
		f.UID = int(*user)
	}
	return f
}

// runsAs returns the one user whom all containers name (pkg/volume/util/util.go,
// FsUserFrom, v1.37.2).
func runsAs(spec *v1.PodSpec) *int64 {
	var one *int64
	for i, c := range allContainers(spec) {
		var user *int64
		if spec.SecurityContext != nil {
			user = spec.SecurityContext.RunAsUser
		}
		if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
			user = c.SecurityContext.RunAsUser
		}
		if user == nil || i > 0 && *user != *one {
			return nil
		}
		one = user
	}
	return one
}
