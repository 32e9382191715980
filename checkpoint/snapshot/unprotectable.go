package snapshot

import "fmt"

// Why a pod can't be protected. The words are for people and metrics alike.
const (
	Unsupported       = "Unsupported"       // a field that can't be static, or not yet
	BadAnnotation     = "BadAnnotation"     // an annotation of ours that is wrong, unknown or not implemented
	LockMismatch      = "LockMismatch"      // annotation and command disagree about the lock
	NeedsLock         = "NeedsLock"         // it serves the API, and two of it would fight
	MissingSecret     = "MissingSecret"     // a Secret, or a key of it, that is not optional
	MissingConfigMap  = "MissingConfigMap"  // a ConfigMap, or a key of it, that is not optional
	MissingToken      = "MissingToken"      // no ServiceAccount to get a token of
	MissingEndpoint   = "MissingEndpoint"   // nowhere to use a token
	UnsafePath        = "UnsafePath"        // a payload file that would leave its directory
	AlreadyCheckpoint = "AlreadyCheckpoint" // a checkpoint has no checkpoint
)

// Unprotectable says that a pod can't be made static. Generations that were
// taken before stay good.
type Unprotectable struct {
	Reason string // one of the constants above
	Field  string // path in the pod, such as spec.volumes[2].projected
	Help   string // what is wrong and what the user can do; never a secret value
}

func (u *Unprotectable) Error() string {
	return fmt.Sprintf("unprotectable: %s: %s: %s", u.Reason, u.Field, u.Help)
}

func refused(reason, field, help string, args ...any) error {
	return &Unprotectable{Reason: reason, Field: field, Help: fmt.Sprintf(help, args...)}
}
