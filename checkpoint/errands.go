package checkpoint

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/cri"
)

const (
	// errandAgain is how soon one that failed is done again.
	errandAgain = time.Minute
	// trustRest is for how long a certificate counts as seen: longer than a View.
	trustRest = 10 * time.Minute
	// imageRest is for how long what an image runs counts as seen. By its ID it never
	// changes, but its name may stand for another image.
	imageRest = time.Hour
)

// errander does Errands in the background, each kind on a goroutine of its own.
type errander struct {
	tokens       *asker[TokenWant, api.Token]
	entrypoints  *asker[string, *snapshot.Image]
	certificates *asker[Trust, string]
}

func newErrander(c Config, clock Clock, heard func(bool), token func(context.Context, api.TokenRequest) (api.Token, error), runtime *cri.Client) *errander {
	return &errander{
		tokens: newAsker(clock, heard, 5*time.Second, goodFor(func(t api.Token) time.Duration { return max(errandAgain, freshFor(t.Issued, t.Expires)) }),
			func(ctx context.Context, w TokenWant) (api.Token, error) { return token(ctx, w.request(c.Node)) }),
		entrypoints: newAsker(clock, heard, 2*time.Second, goodFor(func(*snapshot.Image) time.Duration { return imageRest }),
			func(ctx context.Context, image string) (*snapshot.Image, error) {
				e, err := runtime.Entrypoint(ctx, image)
				if e == nil || err != nil {
					return nil, err
				}
				return &snapshot.Image{Entrypoint: e.Entrypoint, Command: e.Command}, nil
			}),
		certificates: newAsker(clock, heard, 2*time.Second, goodFor(func(string) time.Duration { return trustRest }),
			func(ctx context.Context, t Trust) (string, error) {
				err := api.Verify(ctx, t.Endpoint, []byte(t.CA))
				if errors.Is(err, api.ErrCertificate) {
					return err.Error(), nil
				}
				return "", err
			}),
	}
}

func (e *errander) want(all Errands) {
	e.tokens.want(all.Tokens)
	e.entrypoints.want(all.Entrypoints)
	e.certificates.want(all.Trusts)
}

func (e *errander) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return e.tokens.run(ctx) })
	group.Go(func() error { return e.entrypoints.run(ctx) })
	group.Go(func() error { return e.certificates.run(ctx) })
	return group.Wait()
}

// Token is the newest that was asked for.
func (h *Host) Token(w TokenWant) Answer[api.Token] { return h.errander.tokens.answer(w) }

// Entrypoint is what an image runs, if the runtime tells.
func (h *Host) Entrypoint(image string) Answer[*snapshot.Image] {
	return h.errander.entrypoints.answer(image)
}

// Certificate is why that of an address is not accepted, if it is not.
func (h *Host) Certificate(t Trust) Answer[string] { return h.errander.certificates.answer(t) }
