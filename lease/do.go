package lease

import (
	"context"
	"errors"
	"fmt"
)

// Do waits for name, runs fn while it is held, and releases it after fn has returned, not before: also when fn panics, and
// when its context has ended and it takes its time to notice.
//
// fn's context has the values of ctx. It ends with ctx, or with the lease, and [context.Cause] then says how the lease ended
// as [Lease.Context] does. fn sends the lease's claim with every write; ending its context does not stop it, and
// a write that is already on its way is stopped by the resource alone.
//
// Do returns what [Session.Acquire] does if the name was not granted; fn has not run then. Otherwise fn's error comes first. If the
// lease was over before fn returned, an [*EndedError] is joined to it, or stands alone: the outcome of the work must
// be checked at the resource, because a successor may have been recognised meanwhile. If the release was
// not confirmed, what [Lease.Release] returns is joined: the session repeats the release, the work is not in doubt.
func Do(ctx context.Context, s *Session, name string, fn func(ctx context.Context, l *Lease) error) (err error) {
	l, err := s.Acquire(ctx, Want{Names: []string{name}})
	if err != nil {
		return err
	}
	work, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	defer func() { // also while fn's panic goes on to the caller
		stop()
		cause := l.over()
		cancel(nil)
		err = outcome(l, err, cause, l.Release(ctx))
	}()
	return fn(work, l)
}

// outcome is what Do returns: worked is fn's error, cause that of a lease that was over when fn returned.
func outcome(l *Lease, worked, cause, released error) error {
	var lost *LostError
	byItself := errors.As(cause, &lost) && lost.How == EndReleased
	if cause != nil && !byItself {
		released = concluded("acquisition", l.id, cause)
	}
	if errors.Is(released, ErrEnded) {
		released = fmt.Errorf("lease: ownership of %q was over before the work returned; check at the resource what it did: %w", l.names, released)
	} else if released != nil {
		released = fmt.Errorf("lease: the work under %q returned; its release is not confirmed: %w", l.names, released)
	}
	switch {
	case released == nil:
		return worked
	case worked == nil:
		return released
	}
	return errors.Join(worked, released)
}
