package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// Lab is one node's control plane. Its methods may be called from several
// goroutines, except that the power has one hand: Boot, PowerCut, Reboot and
// Down exclude each other by the caller's care.
type Lab struct {
	options Options
	made    artefacts
	dir     string
	lock    *flock.Flock // nil: looked at only
	admin   func() (*http.Client, error)
}

func newLab(o Options) *Lab {
	l := &Lab{options: o, dir: filepath.Join(o.Cache, "labs", o.Name)}
	l.admin = sync.OnceValues(l.newAdmin)
	return l
}

// ErrNotUp is the error of Open for a lab that was never brought up, or taken down.
var ErrNotUp = errors.New("lab is not up")

// ErrOptions is the error for Options that no lab can have.
var ErrOptions = errors.New("wrong options")

// ErrInUse is the error for a lab that another process is working on.
var ErrInUse = errors.New("lab is in use by another process")

// Up makes a new cluster, after it has removed what is left of one of the same
// name. It returns when the API server answers from its own pod and the daemon,
// if there is one, has saved it. On error, and when ctx ends before,
// nothing is left behind but logs and the cache.
func Up(ctx context.Context, options Options) (_ *Lab, err error) {
	o, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	l := newLab(o)
	if err := preflight(ctx, o); err != nil {
		return nil, err
	}
	if err := l.take(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			// The caller's ctx may be what ended it.
			err = errors.Join(fmt.Errorf("%w (logs: %s)", err, l.logDir()), l.Down(context.WithoutCancel(ctx)))
		}
	}()
	if err := l.clear(ctx, true); err != nil {
		return nil, fmt.Errorf("remove the lab before: %w", err)
	}
	err = l.timed("programs built or found", func() (err error) {
		l.made, err = makeArtefacts(ctx, o, l.binDir(), l.say)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := l.save(); err != nil {
		return nil, err
	}
	l.say("Kubernetes %s on containerd %s", l.made.Version, o.Containerd)
	return l, l.bringUp(ctx)
}

// Open returns the lab of that name and cache (empty: the defaults of Options)
// to look at it.
func Open(options Options) (*Lab, error) {
	o, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	l := newLab(o)
	data, err := os.ReadFile(l.recordPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", o.Name, ErrNotUp)
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read %s: %w", l.recordPath(), err)
	}
	say := o.Say
	l.options, l.made = r.Options, r.Made
	l.options.Say = say
	return l, nil
}

// OpenToChange is Open for who will cut the power, boot, or take it down.
func OpenToChange(options Options) (*Lab, error) {
	l, err := Open(options)
	if err != nil {
		return nil, err
	}
	return l, l.take()
}

// Close lets go of the lab and leaves it as it is.
func (l *Lab) Close() error {
	if l.lock == nil {
		return nil
	}
	return l.lock.Close()
}

// Down takes the lab away: processes, namespaces, cgroups and disk. Its logs
// stay until the next Up. It may be repeated.
func (l *Lab) Down(ctx context.Context) error {
	return errors.Join(l.clear(ctx, false), l.Close())
}

// Down takes the lab of that name and cache away, whether or not it was ever
// wholly up. One that is not there is no error.
func Down(ctx context.Context, options Options) error {
	o, err := options.withDefaults()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	l := newLab(o)
	if err := l.take(); err != nil {
		return err
	}
	return l.Down(ctx)
}

// record is what a later process needs to go on with a lab.
type record struct {
	Options Options
	Made    artefacts
}

func (l *Lab) recordPath() string { return filepath.Join(l.dir, "lab.json") }
func (l *Lab) binDir() string     { return filepath.Join(l.dir, "bin") }
func (l *Lab) diskDir() string    { return filepath.Join(l.dir, "disk") }
func (l *Lab) logDir() string     { return filepath.Join(l.dir, "logs") }
func (l *Lab) planPath() string   { return filepath.Join(l.dir, "plan.json") }

func (l *Lab) save() error {
	data, err := json.MarshalIndent(record{Options: l.options, Made: l.made}, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(l.recordPath(), data, 0o600)
}

// take makes this process the one that changes the lab.
func (l *Lab) take() error {
	if err := os.MkdirAll(filepath.Dir(l.dir), 0o755); err != nil {
		return err
	}
	l.lock = flock.New(l.dir + ".lock")
	got, err := l.lock.TryLock()
	if err != nil {
		return fmt.Errorf("lock %s: %w", l.lock.Path(), err)
	}
	if !got {
		return fmt.Errorf("%s: %w", l.options.Name, ErrInUse)
	}
	return nil
}

// clear removes everything that a lab of this name could have left, by what is
// there and not by what a record says. Without logs, those stay, the pods' among them.
func (l *Lab) clear(ctx context.Context, logs bool) error {
	if err := l.PowerCut(ctx); err != nil {
		return err
	}
	if err := l.network().remove(); err != nil {
		return err
	}
	if !logs {
		if err := l.keepPodLogs(); err != nil {
			return fmt.Errorf("keep the pods' logs: %w", err)
		}
	}
	gone := []string{l.recordPath(), l.binDir(), l.diskDir(), l.planPath(), filepath.Join(l.dir, "root")}
	if logs {
		gone = []string{l.dir}
	}
	for _, path := range gone {
		if err := removeAll(path); err != nil {
			return err
		}
	}
	return nil
}

// keepPodLogs moves them from the disk to the other logs.
func (l *Lab) keepPodLogs() error {
	from, to := filepath.Join(l.diskDir(), "var/log/pods"), filepath.Join(l.logDir(), "pods")
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(removeAll(to), os.MkdirAll(l.logDir(), 0o755), os.Rename(from, to))
}

func (l *Lab) say(format string, args ...any) { l.options.Say(fmt.Sprintf(format, args...)) }

// timed says what is done and, when it is done, how long it took.
func (l *Lab) timed(what string, do func() error) error {
	begun := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	l.say("%6.2fs  %s", time.Since(begun).Seconds(), what)
	return nil
}
