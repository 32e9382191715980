package snapshot

import (
	"io/fs"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// ownership is what the kubelet does to the files of a volume that it fills: they
// are root's, of whoever the container runs as, and an fsGroup gets them as its
// own, to read (pkg/volume/volume_linux.go, changeFilePermission, v1.37.2). It
// does neither to a directory of the host, so that we have to.
type ownership struct {
	gid  int
	mask fs.FileMode
}

func owner(spec *v1.PodSpec) ownership {
	if spec.SecurityContext == nil || spec.SecurityContext.FSGroup == nil {
		return ownership{}
	}
	return ownership{gid: int(*spec.SecurityContext.FSGroup), mask: 0o440}
}

// file is one of a user other than root only if the pod says so, of this file or of
// its volume; a kubelet does that from 1.37 on (AtomicWriteVolumeUserFields).
func (o ownership) file(name string, data []byte, mode fs.FileMode, user *int64) File {
	f := File{Path: name, Data: slices.Clone(data), Mode: (mode | o.mask).Perm(), GID: o.gid}
	if user != nil {
		f.UID = int(*user)
	}
	return f
}
