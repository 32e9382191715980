package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// End ends the process p, as Inspect has told it from the same proc, and
// returns nil when it is gone, so that the kernel has given its locks to the
// next waiters. It sends SIGTERM, and SIGKILL when the process has not ended
// after grace; without a grace it sends SIGKILL alone. A process that is gone
// already is no error, and another one that has its PID by now is not touched.
//
// When ctx is done End gives up and returns its error; the signals that it has
// sent stay sent. It needs CAP_KILL, and to be in the pid namespace of proc.
func End(ctx context.Context, proc string, p Process, grace time.Duration) (err error) {
	defer func() {
		if errors.Is(err, errGone) {
			err = nil
		} else if err != nil {
			err = fmt.Errorf("end process %d: %w", p.PID, err)
		}
	}()
	held, err := hold(proc, p)
	if err != nil {
		return err
	}
	defer held.Close()

	if grace > 0 {
		if err := held.signal(unix.SIGTERM); err != nil {
			return err
		}
		patience, cancel := context.WithTimeout(ctx, grace)
		defer cancel()
		if held.ended(patience) == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := held.signal(unix.SIGKILL); err != nil {
		return err
	}
	return held.ended(ctx)
}
