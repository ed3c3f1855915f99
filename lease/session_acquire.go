package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Want says what to acquire.
type Want struct {
	// Names are taken all or none: 1 to MaxNames different ones, fewer where the store's Guarantees say so.
	Names []string
	// MaxHold ends the acquisition this long after its grant even while the session lives; 0 for no such bound.
	// It must be longer than the session's margin, which the client's deadline is earlier.
	MaxHold time.Duration
	// Try asks once instead of waiting.
	Try bool
	// OnHeld is told of each refusal, on the goroutine that called Acquire, which waits for it. May be nil.
	OnHeld func(*HeldError)
	// OnFailure is told of each failure to ask that Acquire waits out: the error matches ErrUnavailable or ErrUnknown. It is called as
	// OnHeld is, and may end ctx where waiting is of no use. May be nil.
	OnFailure func(error)
}

// Acquire asks for all of w.Names, or none, and waits until they are granted or ctx ends. A waiter polls: first after
// about 20 ms, later every 250 ms or less, and right after the expiry that the refusal told. Waiting is bounded by ctx
// alone. The grant is not: once given it is renewed with the session, whatever becomes of ctx, until
// [Lease.Release]. Every lease must be released, also one whose context has ended.
//
// The acquisition's id is chosen before the call. A lost reply is asked for again under the same id, which returns the
// same tokens; after a refusal the next poll has an id of its own. When ctx ends while an outcome is unknown, the id is
// given back, now and with every renewal until the authority confirms it: nothing is held by accident.
//
// With w.Try, Acquire returns a [*HeldError] if somebody else holds a name, and an error matching [ErrUnavailable] if the
// authority could not be asked. Without, both are waited out, and it returns a [*WaitEndedError] when ctx ends. It returns an
// [*EndedError] if the session is over, or the acquisition was (revoked, say) before its grant was known; one
// matching [ErrInvalid] for names or a MaxHold out of range; one matching [fence.ErrAhead] as the store does;
// [ErrUnavailable] also while 4096 releases wait for confirmation. When it returns an error, the caller holds nothing.
func (s *Session) Acquire(ctx context.Context, w Want) (*Lease, error) {
	w.Names = slices.Clone(w.Names)
	if err := s.checkWant(w); err != nil {
		return nil, err
	}
	a := acquirer{s: s, want: w}
	poll := backoff{next: pollFirst, most: pollMost}
	for {
		if ctx.Err() != nil {
			return nil, a.ended(ctx)
		}
		l, err := a.ask(ctx)
		wait := poll.delay()
		var held *HeldError
		switch {
		case errors.As(err, &held):
			a.held, a.failure = held, nil
			if w.OnHeld != nil {
				w.OnHeld(held)
			}
			wait = pollDelay(wait, held.Left)
		case errors.Is(err, ErrUnavailable) && !a.full:
			a.failure = err
		default:
			return l, err
		}
		if w.Try {
			return nil, err
		}
		a.tell(ctx)
		if !sleep(ctx, s.ctx, wait) {
			return nil, a.ended(ctx)
		}
	}
}

// checkWant refuses what no authority would grant, before an id is spent on it.
func (s *Session) checkWant(w Want) error {
	req := AcquireRequest{Session: s.id, ID: s.id, Names: w.Names, MaxHold: w.MaxHold}
	if err := req.Check(s.limits); err != nil {
		return err
	}
	if w.MaxHold != 0 && w.MaxHold <= s.o.Margin {
		return &InvalidError{"max hold", fmt.Sprintf("want more than the session's margin, %v, got %v", s.o.Margin, w.MaxHold)}
	}
	return nil
}

// acquirer is one Acquire on its way.
type acquirer struct {
	s       *Session
	want    Want
	held    *HeldError // the last refusal
	failure error      // the last failure to ask, nil after a refusal
	full    bool       // too many releases are pending
}

// tell passes on the last failure to ask, unless it is only that ctx has ended.
func (a *acquirer) tell(ctx context.Context) {
	if a.failure != nil && a.want.OnFailure != nil && ctx.Err() == nil {
		a.want.OnFailure(a.failure)
	}
}

// ended says why the wait ended: with the session, or with ctx.
func (a *acquirer) ended(ctx context.Context) error {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	if cause := a.s.overLocked(); cause != nil {
		return concluded("session", a.s.id, cause)
	}
	why := context.Cause(ctx)
	if a.failure != nil {
		why = fmt.Errorf("%w; the last answer: %w", why, a.failure)
	}
	return &WaitEndedError{Names: a.want.Names, Held: a.held, Err: why}
}

// ask makes one acquisition: under one id until its outcome is known, or nobody wants to know it any more.
func (a *acquirer) ask(ctx context.Context) (*Lease, error) {
	req, err := a.begin()
	if err != nil {
		return nil, err
	}
	loose := false // an attempt under this id may yet be applied
	granted := false
	defer func() {
		a.s.mu.Lock()
		defer a.s.mu.Unlock()
		a.s.asking.remove(req.ID)
		if loose && !granted {
			a.s.abandonLocked(Abandoned{ID: req.ID, Names: req.Names})
		}
	}()
	retry := backoff{next: retryFirst, most: retryMost}
	for {
		earlier := loose
		loose = true // also if the store panics
		sent, grants, err := a.send(ctx, req)
		switch {
		case err == nil:
			granted = true
			return a.s.keep(ctx, req, sent, grants)
		case settled(err):
			// A refusal settles this attempt. An earlier one that was unknown may still be on its way, and would be granted
			// when it arrives: then the id must be closed.
			loose = earlier
			return nil, a.refused(err)
		}
		a.failure = unknown("acquire", req.ID, err)
		a.tell(ctx)
		if !sleep(ctx, a.s.ctx, retry.delay()) {
			return nil, a.ended(ctx)
		}
	}
}

// begin chooses the id, in one step with its place among those in flight: ids rise.
func (a *acquirer) begin() (AcquireRequest, error) {
	s := a.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if cause := s.overLocked(); cause != nil {
		return AcquireRequest{}, concluded("session", s.id, cause)
	}
	if s.pending.len() >= maxPending {
		a.full = true
		return AcquireRequest{}, &UnavailableError{Op: "acquire", Err: fmt.Errorf("%d releases wait for the authority's confirmation, and no more are taken on", maxPending)}
	}
	id := s.ids.New()
	s.asking.add(id)
	return AcquireRequest{Session: s.id, ID: id, Names: a.want.Names, MaxHold: a.want.MaxHold}, nil
}

// send asks the store once, for as long as the caller and the session last and at most askBound.
func (a *acquirer) send(ctx context.Context, req AcquireRequest) (sent time.Duration, grants []Grant, err error) {
	s := a.s
	ctx, cancel := context.WithTimeout(ctx, askBound(s.o.TTL))
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	s.mu.Lock()
	req.ClosedBelow = s.closedBelowLocked()
	s.mu.Unlock()
	sent = s.o.Clock()
	grants, err = s.store.Acquire(ctx, req)
	return sent, grants, err
}

// refused takes in a definite answer that is no grant.
func (a *acquirer) refused(err error) error {
	var ended *EndedError
	if errors.As(err, &ended) && ended.ID == a.s.id {
		a.s.mu.Lock()
		defer a.s.mu.Unlock()
		a.s.loseLocked(err)
	}
	return err
}

// keep makes a lease of a grant, or hands the grant back if the session cannot hold it any more.
func (s *Session) keep(ctx context.Context, req AcquireRequest, sent time.Duration, grants []Grant) (*Lease, error) {
	l, err := s.tryKeep(req, sent, grants)
	if err == nil {
		return l, nil
	}
	back := s.giveBack(context.WithoutCancel(ctx), Abandoned{ID: req.ID, Names: req.Names})
	if back != nil && !errors.Is(back, ErrEnded) {
		s.o.Logger.WarnContext(ctx, "lease: handing back a grant failed", "session", s.id, "acquisition", req.ID, "err", back)
	}
	return nil, err
}

// tryKeep makes a lease of a grant, if it is one.
func (s *Session) tryKeep(req AcquireRequest, sent time.Duration, grants []Grant) (*Lease, error) {
	if !matches(req, grants) {
		return nil, unknown("acquire", req.ID, fmt.Errorf("the authority granted other things than were asked for; they are given back"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keepLocked(req, sent, grants)
}

// matches reports whether the grants are what was asked for: a store that answers for something else is not believed.
func matches(req AcquireRequest, grants []Grant) bool {
	if len(grants) != len(req.Names) {
		return false
	}
	for i, g := range grants {
		if g.Claim.Acquisition != req.ID || g.Claim.For(req.Names[i]) != nil || g.Claim.Check() != nil {
			return false
		}
	}
	return true
}
