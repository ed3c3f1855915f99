package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// Session is this process's standing with an authority: it renews itself, however many leases it holds, and ends
// its context and theirs once it can no longer know that they are held. Safe for concurrent use.
//
// It believes until the safe deadline: the reading of its clock just before a request was sent, plus the remaining TTL
// in the reply, less the margin; the latest such deadline counts. A renewal that times out is unknown, not failed,
// and is asked again until then. Past it the contexts end, also if the loop that renews hangs or panics,
// and nothing brings them back: start a new session.
//
// It runs two goroutines, and for a moment at most 16 more that give back acquisitions whose caller did
// not wait; [Session.Close] ends them all.
type Session struct {
	id     fence.ID
	store  Store
	limits Guarantees
	o      Options

	ctx  context.Context // ends with the session, with a cause
	end  context.CancelCauseFunc
	life context.Context // ends when Close begins
	stop context.CancelFunc

	wake chan struct{} // tells the watchdog that an earlier deadline has come in

	mu       sync.Mutex
	cause    error         // of the end, nil while the session lives
	deadline time.Duration // the safe one
	leases   map[fence.ID]*Lease
	holds    holdHeap // of the leases with MaxHold that are not over
	ids      IDs
	asking   asking
	pending  pending
	warned   bool // in this episode
	running  int  // goroutines
	giving   int  // of those, the ones that give back
	idle     chan struct{}
	closed   bool  // the authority answered a Close
	closeErr error // what it answered
	lastSent time.Duration
	lastErr  error // of the latest renewal, nil if it succeeded
	renewals uint64
	failures uint64
}

// Start opens a session and begins to renew it. ctx bounds the opening alone and lends its values to the session's
// context; the session lives until [Session.Close], or until it is lost.
//
// An open whose reply is lost is repeated under the same id until ctx ends. Start returns an error matching
// [ErrInvalid] for settings out of range; [ErrUnavailable] if the authority could not be asked, at once;
// [ErrUnknown] if ctx ended before the outcome was known: the session, if it was opened, holds nothing and expires by
// itself; [ErrEnded] if the authority answered so late that nothing of the TTL was left.
func Start(ctx context.Context, store Store, o Options) (*Session, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	req := OpenRequest{ID: NewID(), Owner: o.Owner, TTL: o.TTL}
	limits := store.Guarantees()
	if err := req.Check(limits); err != nil {
		return nil, err
	}
	sent, left, err := open(ctx, store, req, o.Clock)
	if err != nil {
		return nil, err
	}
	s := &Session{id: req.ID, store: store, limits: limits, o: o,
		wake: make(chan struct{}, 1), leases: map[fence.ID]*Lease{}, idle: make(chan struct{}), pending: newPending()}
	s.ctx, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
	s.life, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.deadline = safeDeadline(sent, min(left, o.TTL), o.Margin)
	s.lastSent = sent
	if err := s.begin(); err != nil {
		_ = s.Close(ctx) // it holds nothing, and expires by itself where this fails
		return nil, err
	}
	return s, nil
}

// begin starts the loops, unless the reply to the open came too late to be of use.
func (s *Session) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.overLocked() != nil {
		return concluded("session", s.id, s.cause)
	}
	s.goLocked(s.watch)
	opened := s.lastSent
	s.goLocked(func() { s.renew(opened) })
	return nil
}

// open asks until the answer is definite or ctx ends, always under the same id.
func open(ctx context.Context, store Store, req OpenRequest, clock func() time.Duration) (sent, left time.Duration, err error) {
	retry := backoff{next: retryFirst, most: retryMost}
	applied := false // possibly, by an attempt whose outcome is unknown
	for {
		call, cancel := context.WithTimeout(ctx, askBound(req.TTL))
		sent = clock()
		left, err = store.Open(call, req)
		cancel()
		if settled(err) && !(applied && errors.Is(err, ErrUnavailable)) {
			return sent, left, err
		}
		applied = applied || !errors.Is(err, ErrUnavailable)
		if !sleep(ctx, nil, retry.delay()) {
			return sent, left, unknown("open", req.ID, err)
		}
	}
}

// ID is the session's id. It names the session and is no right.
func (s *Session) ID() fence.ID { return s.id }

// Context ends when the session does. [context.Cause] then says how: a [*LostError] if the authority said so or the
// session was closed here, an [*UncertainError] if ownership could not be established past the safe deadline.
// Calling it reads the clock: after a suspend the context that it returns is already ended.
func (s *Session) Context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.overLocked()
	return s.ctx
}

// Left is the time to the safe deadline, unless renewed; 0 once the session is over.
func (s *Session) Left() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.overLocked() != nil {
		return 0
	}
	return max(s.deadline-s.o.Clock(), 0)
}

// SessionStats are for metrics.
type SessionStats struct {
	Renewals        uint64        // that the authority acknowledged
	FailedRenewals  uint64        // that it did not: refused, unknown or not sent
	LastRenewal     time.Duration // since the latest acknowledged renewal, or the open, was sent
	Left            time.Duration // to the safe deadline; 0 once the session is over
	Leases          int           // not released by this client, those included whose longest hold has passed
	PendingReleases int           // acquisitions whose release the authority has not confirmed
}

// Stats returns the figures as they are now.
func (s *Session) Stats() SessionStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := SessionStats{Renewals: s.renewals, FailedRenewals: s.failures, PendingReleases: s.pending.len()}
	if s.overLocked() == nil {
		stats.Left, stats.Leases = max(s.deadline-s.o.Clock(), 0), len(s.leases)
	}
	stats.LastRenewal = s.o.Clock() - s.lastSent
	return stats
}

// Close ends the session, its context and those of its leases, and gives up every lease at the authority. It is for
// after the work: it does not wait for whoever still uses a lease. Waiting Acquires end with [ErrEnded].
//
// Close ignores the end of ctx and takes at most the TTL, no less than 1 s and no more than 5 s, as long as the store
// heeds its context. No renewal is sent once the authority is asked to close. When Close returns, no
// goroutine or timer of the session is left, unless a call to the store never returned, which is logged, or an OnWarn did not.
//
// Closing again is success. Close returns an [*EndedError] if the session had been over before, as the authority
// told it: its leases were lost earlier than the caller may believe. It returns an error matching [ErrUnknown] or
// [ErrUnavailable] if no answer came: the leases then end by themselves, at most the TTL later; Close may be called again.
func (s *Session) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endBound(s.o.TTL))
	defer cancel()
	s.mu.Lock()
	_ = s.overLocked()
	s.endLocked(&LostError{How: EndClosed})
	s.stop()
	s.quitLocked()
	done, err := s.closed, s.closeErr
	var lost *LostError
	if !done && errors.As(s.cause, &lost) && lost.How != EndClosed {
		done, err = true, concluded("session", s.id, s.cause)
	}
	s.mu.Unlock()
	s.settle(ctx)
	if done {
		return err
	}
	err = s.closeAtStore(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || errors.Is(err, ErrEnded) {
		s.closed, s.closeErr = true, err
	}
	return err
}

// settle waits for the session's goroutines, for at most half of the time that ctx leaves: the rest is for the
// authority. Their calls have been cancelled; what still runs is inside a store that does not heed its context.
func (s *Session) settle(ctx context.Context) {
	half := time.NewTimer(endBound(s.o.TTL) / 2)
	defer half.Stop()
	select {
	case <-s.idle:
	case <-half.C:
		s.o.Logger.ErrorContext(ctx, "lease: a call to the store does not return although its context ended; its goroutine is left behind", "session", s.id)
	}
}

// closeAtStore asks until the answer is definite or ctx ends.
func (s *Session) closeAtStore(ctx context.Context) error {
	retry := backoff{next: retryFirst, most: retryMost}
	applied := false // possibly, by an attempt whose outcome is unknown
	for {
		err := s.store.Close(ctx, s.id)
		if settled(err) && !errors.Is(err, ErrUnavailable) {
			return err
		}
		applied = applied || !errors.Is(err, ErrUnavailable)
		if sleep(ctx, nil, retry.delay()) {
			continue
		}
		if applied {
			return unknown("close", s.id, err)
		}
		return err
	}
}

// sleep waits for d and reports whether it did, rather than one of the contexts ending first. b may be nil.
func sleep(a, b context.Context, d time.Duration) bool {
	var other <-chan struct{}
	if b != nil {
		other = b.Done()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-a.Done():
	case <-other:
	}
	return false
}

// unknown returns err as one that matches ErrUnknown.
func unknown(op string, id fence.ID, err error) error {
	if errors.Is(err, ErrUnknown) {
		return err
	}
	if err == nil {
		err = fmt.Errorf("no answer")
	}
	return &UnknownError{Op: op, ID: id, Err: err}
}
