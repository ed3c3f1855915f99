package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// Lease is ownership of one or more names under one acquisition. Its claims never change, and once its context has
// ended it never comes back: acquiring again yields a new Lease. Safe for concurrent use. See [Session.Acquire].
//
// That a lease is over stops nobody and recalls nothing. The claim, checked at the resource, does.
type Lease struct {
	session *Session
	id      fence.ID
	names   []string // as asked for
	claims  []fence.Claim
	ctx     context.Context // a child of the session's
	end     context.CancelCauseFunc
	maxHold bool
	hold    time.Duration // the safe deadline of MaxHold

	// Under session.mu.
	at       int   // in session.holds, or -1
	released bool  // the authority answered a release for certain
	answer   error // what it answered
}

// ID is the acquisition's id. It names the acquisition and is no right.
func (l *Lease) ID() fence.ID { return l.id }

// Names returns the names, in the order in which they were asked for.
func (l *Lease) Names() []string { return slices.Clone(l.names) }

// Context ends when the lease does, with the cause that [Session.Context] describes; [*LostError] with EndReleased after a
// release here, with EndRevoked and the reason after a revocation, and [*UncertainError] with MaxHold set once the longest
// hold has passed, less the margin. Calling it reads the clock: after a suspend the context it returns is already ended.
func (l *Lease) Context() context.Context {
	_ = l.over()
	return l.ctx
}

// Claim returns the claim to the one name that is held, to be sent with every write. It reads the clock first.
//
// Claim returns an [*EndedError] if the lease is over, with How 0 if the authority has not said so and the client
// concluded it, and an [*InvalidError] if the lease has several names: see [Lease.Claims]. A claim that was returned
// proves nothing by itself: between here and the write the lease may end, and only the resource can tell.
func (l *Lease) Claim() (fence.Claim, error) {
	if len(l.claims) != 1 {
		return fence.Claim{}, &InvalidError{"names", fmt.Sprintf("the lease has %d of them: ask for Claims", len(l.claims))}
	}
	if cause := l.over(); cause != nil {
		return fence.Claim{}, concluded("acquisition", l.id, cause)
	}
	return l.claims[0], nil
}

// Claims returns the claims to all names, in the order in which they were asked for. Otherwise as [Lease.Claim].
func (l *Lease) Claims() ([]fence.Claim, error) {
	if cause := l.over(); cause != nil {
		return nil, concluded("acquisition", l.id, cause)
	}
	return slices.Clone(l.claims), nil
}

// Left is the time to the safe deadline, the session's unless renewed or that of MaxHold; 0 once the lease is over.
func (l *Lease) Left() time.Duration {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.overLocked() != nil {
		return 0
	}
	left := s.deadline - s.o.Clock()
	if l.maxHold {
		left = min(left, l.hold-s.o.Clock())
	}
	return max(left, 0)
}

func (l *Lease) over() error {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	return l.overLocked()
}

// overLocked reads the clock and returns the cause of the lease's end, or nil.
func (l *Lease) overLocked() error {
	_ = l.session.overLocked()
	return context.Cause(l.ctx)
}

// Release ends the lease's context, then frees the names at the authority. It is for after the work: cancelling the work
// is not releasing, and releasing does not wait for the work.
//
// Release ignores the end of ctx and takes at most the TTL, no less than 1 s and no more than 5 s, as long as the store
// heeds its context. Releasing again is success. It returns an [*EndedError] if the lease had been over before, by
// expiry, supersession or revocation: what was done under it must be checked at the resource. It returns an error
// matching [ErrUnknown] or [ErrUnavailable] if the authority did not confirm; then the session's renewals repeat it, and
// so may the caller.
func (l *Lease) Release(ctx context.Context) error {
	s := l.session
	s.mu.Lock()
	cause := l.overLocked()
	delete(s.leases, l.id) // from here on it is pending, or over
	if cause == nil {
		s.endLeaseLocked(l, &LostError{How: EndReleased})
	}
	if s.closed && s.closeErr == nil {
		l.released = true // with its session
	}
	var lost *LostError
	if !l.released && errors.As(cause, &lost) && lost.How != EndReleased && lost.How != EndClosed {
		l.released, l.answer = true, concluded("acquisition", l.id, cause)
	}
	done, answer := l.released, l.answer
	s.mu.Unlock()
	if done {
		return answer
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endBound(s.o.TTL))
	defer cancel()
	err := s.release(ctx, Abandoned{ID: l.id, Names: l.names})
	if err == nil || errors.Is(err, ErrEnded) {
		s.mu.Lock()
		defer s.mu.Unlock()
		l.released, l.answer = true, err
	}
	return err
}
