package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// renew is the loop that keeps the session alive: one call, however many leases there are. It decides nothing
// about the end but what the authority says; the watchdog does the rest. opened is when the open was sent.
func (s *Session) renew(opened time.Duration) {
	retry := renewRetry(s.o.TTL)
	due := opened + renewEvery(s.o.TTL)
	for s.sleepUntil(due) {
		sent, again, err := s.renewOnce()
		switch {
		case err != nil:
			due = s.o.Clock() + retryDelay(retry.delay(), s.o.TTL, s.Left())
		case again:
			due = sent + renewEvery(s.o.TTL)/10
		default:
			due = sent + renewEvery(s.o.TTL)
		}
		if err == nil {
			retry = renewRetry(s.o.TTL)
		}
	}
}

// sleepUntil waits until the clock shows due, looking at it often enough to notice that the machine slept. It
// reports false once the session is over.
func (s *Session) sleepUntil(due time.Duration) bool {
	for {
		left := due - s.o.Clock()
		if left <= 0 {
			return s.ctx.Err() == nil
		}
		if !sleep(s.ctx, nil, min(left, tick(s.o.Margin))) {
			return false
		}
	}
}

// renewOnce sends one renewal and takes in the answer. again is true if more releases wait than one renewal carries.
func (s *Session) renewOnce() (sent time.Duration, again bool, err error) {
	s.mu.Lock()
	if err := s.overLocked(); err != nil {
		s.mu.Unlock()
		return 0, false, err
	}
	req := RenewRequest{Session: s.id, ClosedBelow: s.closedBelowLocked()}
	if s.lastErr == nil { // after a failure without them: a release that waits for somebody must not cost the session
		req.Release = s.pending.first(MaxRelease)
	}
	sent = s.o.Clock()
	bound := renewBound(s.o.TTL, s.deadline-sent)
	s.mu.Unlock()

	reply, err := s.callRenew(req, bound)

	s.mu.Lock()
	defer s.mu.Unlock()
	if cause := s.overLocked(); cause != nil { // before the reply is taken in: what is over stays over
		return sent, false, cause
	}
	s.countLocked(sent, err)
	if errors.Is(err, ErrEnded) {
		s.loseLocked(err)
	}
	if err != nil {
		return sent, false, err
	}
	s.believeLocked(sent, reply.Remaining)
	for _, a := range req.Release {
		s.pending.remove(a.ID)
	}
	for _, r := range reply.Revoked {
		s.revokedLocked(r)
	}
	return sent, s.pending.len() >= MaxRelease, nil
}

// callRenew asks the store, for at most bound. A panic in it is an outcome like another unknown one.
func (s *Session) callRenew(req RenewRequest, bound time.Duration) (reply Renewal, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, bound)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			err = unknown("renew", s.id, fmt.Errorf("the store panicked: %v", r))
		}
	}()
	return s.store.Renew(ctx, req)
}

// countLocked keeps the figures, and logs the first failure of a row and the recovery.
func (s *Session) countLocked(sent time.Duration, err error) {
	switch {
	case err == nil && s.lastErr != nil:
		s.o.Logger.Info("lease: renewed again", "session", s.id)
	case err != nil && s.lastErr == nil:
		s.o.Logger.Warn("lease: renewal not acknowledged; asking again until the safe deadline",
			"session", s.id, "left", s.deadline-s.o.Clock(), "err", err)
	}
	s.lastErr = err
	if err != nil {
		s.failures++
		return
	}
	s.renewals++
	s.lastSent = max(s.lastSent, sent)
}

// revokedLocked takes in that an operator took an acquisition away. Its names go into the next renewal's
// releases: the authority repeats the news until then.
func (s *Session) revokedLocked(r RevokedAcquisition) {
	l := s.leases[r.ID]
	if l == nil {
		return // its release is confirmed, or pending
	}
	s.endLeaseLocked(l, &LostError{How: EndRevoked, Reason: r.Reason})
	delete(s.leases, r.ID)
	s.pending.add(Abandoned{ID: l.id, Names: l.names})
}

// closedBelowLocked is the lowest acquisition id that is still asked for, or one above all ids so far. An
// acquire below it that arrives later gets no new grant; what is held below it stays held.
func (s *Session) closedBelowLocked() fence.ID {
	if id, ok := s.asking.lowest(); ok {
		return id
	}
	return s.ids.New()
}
