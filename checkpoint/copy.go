package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
)

const (
	// copyRetry is how long a static copy that could not be written is left alone.
	copyRetry = 10 * time.Second
	// copyStarts is how long the kubelet may take until the copy waits for its lock:
	// the one before ends first.
	copyStarts = time.Minute
	// copyStands is what the status says of a file that is as it should be.
	copyStands = "up to date"
)

// ownCopy is what the loop remembers of its static copy: nothing that the next
// pass could not find out anew.
type ownCopy struct {
	of       string // UID and version of the pod that manifest was made of
	manifest []byte
	refused  error // why none can be made of it

	led   bool          // there was a pass; when the first one was
	since time.Duration // by the loop's clock

	failed error         // of the last write
	again  time.Duration // when the next one is due
	said   string        // the last trouble that was logged
}

// keepCopy is the last step of a pass: the manifest of the daemon's static copy
// follows its own pod from the API. Only who runs as that pod, and leads, does this.
//
// An absent one is written at once. Another one is replaced only after this process
// has led for KnownGoodAfter, so that a version that ends before leaves one that does
// not; and only while the kubelet is known to have its pods from the API server, since
// before that it would stop neither and start neither. What somebody else put there
// stays, and is named.
func (l *Loop) keepCopy(ctx context.Context, s *sight, status *Status) {
	if !l.copy.led {
		l.copy.led, l.copy.since = true, s.at
	}
	var troubles []string
	if err := l.copyStep(ctx, s, status); err != nil {
		troubles = append(troubles, "static copy: "+err.Error())
	}
	if status.StaticCopy == copyStands {
		troubles = append(troubles, l.copyRuns(s)...)
	}
	if own, _ := s.own(); own != nil {
		troubles = append(troubles, l.observer.copyFindings(copyImages(own))...)
	}
	status.Problems = append(status.Problems, troubles...)
	words := strings.Join(troubles, "; ")
	if words != "" && words != l.copy.said {
		l.log.Warn("static copy", "why", words)
	}
	l.copy.said = words
}

// copyImages are those from which the kubelet starts a copy of the pod.
func copyImages(own *v1.Pod) []string {
	var images []string
	for _, c := range own.Spec.Containers {
		images = append(images, c.Image)
	}
	return images
}

// copyStep tells in status where the copy stands, and returns what a person has
// to do something about.
func (l *Loop) copyStep(ctx context.Context, s *sight, status *Status) error {
	own, err := s.own()
	listing, known := s.listing.Value()
	if !known || own == nil {
		return err // without one, the source tells why
	}
	if err := foreignCopy(listing); err != nil {
		return err
	}
	if err := l.copy.make(own); err != nil {
		return err
	}
	i := slices.IndexFunc(listing.Copies, func(c kubelet.Copy) bool { return c.File == kubelet.CopyFile })
	if i >= 0 && bytes.Equal(listing.Copies[i].Data, l.copy.manifest) {
		l.copy.failed, status.StaticCopy = nil, copyStands
		return nil
	}
	status.StaticCopy = "absent"
	if i >= 0 {
		status.StaticCopy = "of an earlier version"
		if waits := l.copyWaits(s); waits != "" {
			status.StaticCopy += "; it is replaced once " + waits
			return nil
		}
	}
	return l.writeCopy(ctx, s, own, status)
}

// copyWaits says what has to come before another copy is replaced, "" if nothing has.
func (l *Loop) copyWaits(s *sight) string {
	if on, ok := synced(s.kubelet).Value(); !ok || !on {
		return "the kubelet is known to have its pods from the API server"
	}
	if s.at-l.copy.since < l.config.KnownGoodAfter {
		return "this version has led for " + l.config.KnownGoodAfter.String()
	}
	return ""
}

// copyRuns names a copy that was not seen to wait for the lock of this one for a
// while, in which kubelet and runtime told of themselves: with the right file alone
// nobody leads once this pod is gone.
func (l *Loop) copyRuns(s *sight) []string {
	listing, _ := s.listing.Value()
	i := slices.IndexFunc(listing.Copies, func(c kubelet.Copy) bool { return c.File == kubelet.CopyFile })
	pods, known := s.pods.Value()
	if on, _ := synced(s.kubelet).Value(); i < 0 || !known || !on {
		return nil
	}
	file := listing.Copies[i]
	if slices.ContainsFunc(s.waiting, func(w instance) bool { return w.PodUID == file.UID && w.Source == "file" }) {
		return nil
	}
	if s.at-l.observer.watch.since("copy runs", file.UID) < copyStarts {
		return nil
	}
	return []string{fmt.Sprintf("StaticCopyNotRunning: %s/%s does not wait for the lock, and so nobody leads when this pod ends: %s",
		file.Namespace, file.PodName, whatToSee(file, pods))}
}

// whatToSee says how far a copy has come, and where the reason is to be found.
func whatToSee(file kubelet.Copy, pods []cri.Pod) string {
	i := slices.IndexFunc(pods, func(p cri.Pod) bool { return p.UID == file.UID })
	switch {
	case i < 0:
		return "the runtime has no such pod; see in the kubelet's log whether it was rejected at admission, and whether the kubelet watches this directory (--static-pod-dir)"
	case len(pods[i].Containers) == 0:
		return "its pod has no container; see in the kubelet's log whether it can't have the image"
	}
	c := pods[i].Containers[0]
	return fmt.Sprintf("its container is %s; see crictl logs %s, and the kubelet's log", c.State, c.ID)
}

// own is the pod that this daemon runs in, as the API server tells it; nil if it runs
// in none, or in one that is on its way out, or if that is not known.
func (s *sight) own() (*v1.Pod, error) {
	if _, known := s.pods.Value(); known && s.self.PodUID != "" && s.self.Name == "" {
		return nil, fmt.Errorf("none is kept, since this daemon's pod %s is in none of --namespaces: add its namespace", s.self.PodUID)
	}
	parents, known := s.api.Value()
	if !known || s.self.Source != "api" {
		return nil, nil
	}
	for i := range parents.view.Pods {
		if pod := &parents.view.Pods[i]; string(pod.UID) == s.self.PodUID && pod.DeletionTimestamp == nil {
			return pod, nil
		}
	}
	return nil, nil
}

// writeCopy puts the manifest in place.
func (l *Loop) writeCopy(ctx context.Context, s *sight, own *v1.Pod, status *Status) error {
	switch {
	case l.config.DryRun || ctx.Err() != nil: // or told to stop
		return nil
	case l.copy.failed != nil && s.at < l.copy.again:
		return l.copy.failed
	}
	l.copy.again = s.at + copyRetry
	if l.copy.failed = l.observer.manifests.Write(kubelet.CopyFile, l.copy.manifest); l.copy.failed != nil {
		return l.copy.failed
	}
	name := own.Namespace + "/" + own.Name
	l.log.Info("static copy written", "pod", name, "why", status.StaticCopy)
	l.happened(name, "static copy written")
	status.StaticCopy = "written"
	return nil
}

// make makes the manifest once for each version of the pod, not in each pass.
func (c *ownCopy) make(own *v1.Pod) error {
	if of := string(own.UID) + " " + own.ResourceVersion; of != c.of {
		c.of = of
		c.manifest, c.refused = snapshot.Self(own)
	}
	if c.refused != nil {
		return fmt.Errorf("%w; one that is there already stays as it is", c.refused)
	}
	return nil
}

// foreignCopy names what stands in the way of our file in the directory.
func foreignCopy(listing kubelet.Listing) error {
	var found []error
	for _, c := range listing.Copies {
		if c.File != kubelet.CopyFile {
			found = append(found, fmt.Errorf("%s is one too: move it out of the static pod directory", c.File))
		}
	}
	for _, pod := range listing.Foreign {
		if pod.File == kubelet.CopyFile {
			found = append(found, fmt.Errorf("%s: %w", pod.File, kubelet.ErrForeign))
		}
	}
	for _, problem := range listing.Problems {
		switch {
		case problem.File != kubelet.CopyFile:
		case problem.Read:
			found = append(found, fmt.Errorf("%s: %w", problem, kubelet.ErrForeign))
		default:
			found = append(found, fmt.Errorf("nobody knows what it is: %s", problem))
		}
	}
	return errors.Join(found...)
}
