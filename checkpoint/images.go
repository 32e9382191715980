package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/kubelet"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
)

// Image is what runtime and kubelet have of an image that a start would use.
type Image struct {
	Present bool
	Unclear string // why the runtime does not tell whether it is there; "": it does
	// Asks: the kubelet would ask the registry for it all the same, since it is for
	// pods with credentials alone, which a static pod has none of.
	Asks Observed[bool]

	id     string
	pinned bool
}

// askImages asks for all images that starts would use, and keeps them on the node. What
// a pod calls its image anybody may make up: one of which the runtime does not tell
// leaves the others known.
func (h *Host) askImages(ctx context.Context) (map[string]Image, error) {
	wants := h.wants.Load()
	out := map[string]Image{}
	if wants == noWants {
		return out, nil // or all pins would be taken off, a moment before they are wanted
	}
	var unclear []error
	for _, name := range slices.Concat(wants.Images, wants.CopyImages) {
		if _, asked := out[name]; asked {
			continue
		}
		image, present, err := h.runtime.Image(ctx, name)
		seen := Image{Present: present, id: image.ID, pinned: image.Pinned}
		switch {
		case err != nil:
			unclear = append(unclear, err)
			seen.Unclear = err.Error()
		case present:
			seen.Asks = from(kubelet.AsksRegistry(h.config.KubeletDir, name, image.ID))
		}
		out[name] = seen
	}
	if len(unclear) > 0 && len(unclear) == len(out) {
		return nil, unclear[0]
	}
	if !h.config.DryRun {
		h.pins.keep(ctx, wants.Images, out)
	}
	return out, nil
}

// pins keep the images of the generations on the node: the kubelet removes an image
// that no container uses when the disk runs full, unless the runtime says that it is
// pinned. Of a runtime that can't pin nothing is asked, and nothing said.
type pins struct {
	runtime *cri.Client
	log     *slog.Logger
	last    string // what was seen when all that could be done was done
}

// keep pins the wanted images, and takes back the pins of earlier ones, once it is known
// which those are. While nothing changes it asks the runtime for nothing.
func (p *pins) keep(ctx context.Context, wanted []string, seen map[string]Image) {
	ids, all := map[string]bool{}, true // whether it is pinned
	for _, name := range wanted {
		image := seen[name]
		if image.Present {
			ids[image.id] = image.pinned
		}
		all = all && image.Unclear == ""
	}
	now := fmt.Sprint(all, ids) // sorted by key
	if now == p.last {
		return
	}
	switch err := p.change(ctx, ids, all); {
	case err == nil || errors.Is(err, cri.ErrNoPins):
		p.last = now
	default:
		p.log.Warn("pin images", "err", err)
	}
}

func (p *pins) change(ctx context.Context, ids map[string]bool, all bool) error {
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if pinned := ids[id]; pinned {
			continue
		}
		if err := p.runtime.Pin(ctx, id); err != nil {
			return err
		}
	}
	if !all {
		return nil
	}
	ours, err := p.runtime.Pins(ctx)
	if err != nil {
		return err
	}
	for _, id := range ours {
		if _, wanted := ids[id]; wanted {
			continue
		}
		if err := p.runtime.Unpin(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// imageFindings are about the images of the generations that a start may use, while
// there is time to do something about them.
func (o *observer) imageFindings(w World) []string {
	images, known := o.images().Value()
	if !known {
		return nil
	}
	var findings []string
	for _, g := range trusted(w, func(g store.Generation) bool { return w.Unusable[g.Seq] == "" }) {
		for _, name := range o.read(w.Workload, g).Images {
			switch image, asked := images[name]; {
			case image.Unclear != "":
				findings = append(findings, fmt.Sprintf("ImageMissing: nobody knows whether the image is on this node from which generation %d starts: %s", g.Seq, image.Unclear))
			case asked && !image.Present:
				findings = append(findings, fmt.Sprintf("ImageMissing: %s is not on this node, and generation %d starts from it: without a registry it will not; pull it, or import it with ctr -n k8s.io images import", name, g.Seq))
			}
			findings = append(findings, pullSecrets(name, images)...)
		}
	}
	slices.Sort(findings)
	return slices.Compact(findings)
}

// copyFindings are about the images of the daemon's static copy.
func (o *observer) copyFindings(names []string) []string {
	images, _ := o.images().Value()
	var findings []string
	for _, name := range names {
		findings = append(findings, pullSecrets(name, images)...)
	}
	return findings
}

// images is what is known of the images that the last pass wanted to know of.
func (o *observer) images() Observed[map[string]Image] {
	return current(o.clock.Now(), o.sources.Images(), imagesAge, "images")
}

func pullSecrets(name string, images map[string]Image) []string {
	image := images[name]
	asks, known := image.Asks.Value()
	switch {
	case !image.Present:
		return nil
	case !known:
		return []string{fmt.Sprintf("PullSecrets: nobody knows whether the kubelet starts a static pod from the image %s without asking a registry: %s", name, image.Asks.Why())}
	case !asks:
		return nil
	}
	return []string{strings.Join([]string{
		"PullSecrets: by the kubelet's record the image " + name + " is for pods with the credentials that pulled it, and a static pod has none: the kubelet would ask the registry, and start nothing without its answer",
		"give the credentials to the kubelet itself (a credential provider, or its config.json) and let it pull the image once for a pod without imagePullSecrets, or set imagePullCredentialsVerificationPolicy: NeverVerify in its configuration",
	}, "; ")}
}
