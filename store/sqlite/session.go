package sqlite

import (
	"context"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// What an Open cleans up beside its own work, so that a file which only short processes use stays small.
const (
	sweepRows = 16
	sweepAge  = 24 * time.Hour
)

// Open is part of [lease.Store].
func (s *Store) Open(ctx context.Context, req lease.OpenRequest) (time.Duration, error) {
	if err := req.Check(s.Guarantees()); err != nil {
		return 0, err
	}
	var left time.Duration
	err := s.writer.do(ctx, &request{op: "open", id: req.ID, do: func(b *batch) (err error) {
		left, err = b.open(req)
		return err
	}}, false)
	if err != nil {
		return 0, err // the writer may still be at work on it: not even read
	}
	return left, nil
}

func (b *batch) open(req lease.OpenRequest) (time.Duration, error) {
	s, err := b.session(req.ID)
	if err != nil {
		return 0, err
	}
	if !s.found {
		s.found, s.isNew, s.dirty = true, true, true
		s.since, s.owner, s.ttl, s.expiry = b.auth.issued, req.Owner, int64(req.TTL), b.now+int64(req.TTL)
		return req.TTL, b.sweep()
	}
	if s, err = b.live(req.ID); err != nil {
		return 0, err
	}
	switch {
	case s.owner != req.Owner:
		return 0, &lease.MismatchError{What: "owner", ID: req.ID}
	case s.ttl != int64(req.TTL):
		return 0, &lease.MismatchError{What: "ttl", ID: req.ID}
	}
	return s.remaining(b.now), nil
}

// sweep writes the verdict over a few expired sessions and forgets a few that were over a day ago.
func (b *batch) sweep() error {
	expired, err := b.expiredSessions()
	if err != nil {
		return err
	}
	for _, id := range expired {
		s, err := b.session(id)
		if err != nil {
			return err
		}
		if s.ended == 0 && b.now >= s.expiry {
			s.end(lease.EndExpired, s.expiry)
		}
	}
	if err := b.flush(); err != nil {
		return err
	}
	_, err = b.pruneEnded(sweepAge, sweepRows)
	return err
}

func (b *batch) expiredSessions() ([]fence.ID, error) {
	rows, err := b.store.stmts.expired.Query(b.now, sweepRows)
	if err != nil {
		return nil, b.fail(err)
	}
	defer rows.Close()
	var expired []fence.ID
	for rows.Next() {
		var id []byte
		if err := rows.Scan(&id); err != nil {
			return nil, b.fail(err)
		}
		expired = append(expired, asID(id))
	}
	if err := rows.Err(); err != nil {
		return nil, b.fail(err)
	}
	return expired, nil
}

// Renew is part of [lease.Store].
func (s *Store) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	if err := req.Check(); err != nil {
		return lease.Renewal{}, err
	}
	req.Release = slices.Clone(req.Release) // the writer may read it after the caller's context has ended
	for i := range req.Release {
		req.Release[i].Names = slices.Clone(req.Release[i].Names)
	}
	var renewal lease.Renewal
	err := s.writer.do(ctx, &request{op: "renew", id: req.Session, do: func(b *batch) (err error) {
		renewal, err = b.renew(req)
		return err
	}}, true)
	if err != nil {
		return lease.Renewal{}, err // the writer may still be at work on it: not even read
	}
	return renewal, nil
}

func (b *batch) renew(req lease.RenewRequest) (lease.Renewal, error) {
	s, err := b.live(req.Session)
	if err != nil {
		return lease.Renewal{}, err
	}
	s.close(req.ClosedBelow)
	for _, a := range req.Release {
		// What became of it is no matter here: after this it is over. Only an SQL error counts.
		_, _ = b.release(lease.ReleaseRequest{Session: req.Session, ID: a.ID, Names: a.Names})
		if b.err != nil {
			return lease.Renewal{}, b.err
		}
	}
	s.expiry, s.dirty = b.now+s.ttl, true
	renewal := lease.Renewal{Remaining: time.Duration(s.ttl)}
	if !s.endedUpTo.IsZero() {
		renewal.Revoked, err = b.endedOf(s)
	}
	return renewal, err
}

// endedOf drops the records that nobody can ask for any more and returns the revocations to be told.
func (b *batch) endedOf(s *session) ([]lease.RevokedAcquisition, error) {
	st := b.store.stmts
	if _, err := st.dropEnded.Exec(s.id[:], s.closedBelow[:], int(lease.EndReleased)); err != nil {
		return nil, b.fail(err)
	}
	b.wrote = true
	var last []byte
	if err := st.lastEnded.QueryRow(s.id[:]).Scan(&last); err != nil {
		return nil, b.fail(err)
	}
	s.endedUpTo = fence.ID{}
	copy(s.endedUpTo[:], last)
	rows, err := st.untold.Query(s.id[:], lease.MaxRelease)
	if err != nil {
		return nil, b.fail(err)
	}
	defer rows.Close()
	var revoked []lease.RevokedAcquisition
	for rows.Next() {
		var id []byte
		var r lease.RevokedAcquisition
		if err := rows.Scan(&id, &r.Reason); err != nil {
			return nil, b.fail(err)
		}
		r.ID = asID(id)
		revoked = append(revoked, r)
	}
	if err := rows.Err(); err != nil {
		return nil, b.fail(err)
	}
	return revoked, nil
}

// Close is part of [lease.Store].
func (s *Store) Close(ctx context.Context, session fence.ID) error {
	if session.IsZero() {
		return &lease.InvalidError{Field: "session", Problem: "no id"}
	}
	return s.writer.do(ctx, &request{op: "close", id: session, do: func(b *batch) error { return b.closeSession(session) }}, false)
}

func (b *batch) closeSession(id fence.ID) error {
	s, err := b.session(id)
	if err != nil {
		return err
	}
	if !s.found {
		// Remembered as closed, so that an Open which arrives later is refused.
		s.found, s.isNew = true, true
		s.since, s.expiry = b.auth.issued, b.now
		s.end(lease.EndClosed, b.now)
		return nil
	}
	if s.ended == 0 && b.now < s.expiry {
		s.end(lease.EndClosed, b.now)
		return nil
	}
	if s.ended == 0 {
		s.end(lease.EndExpired, s.expiry)
	}
	if s.ended == lease.EndClosed {
		return nil
	}
	return &lease.EndedError{What: "session", ID: id, How: s.ended}
}

// Release is part of [lease.Store].
func (s *Store) Release(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
	if err := req.Check(); err != nil {
		return lease.Released{}, err
	}
	req.Names = slices.Clone(req.Names) // the writer may read it after the caller's context has ended
	var released lease.Released
	err := s.writer.do(ctx, &request{op: "release", id: req.ID, do: func(b *batch) (err error) {
		released, err = b.release(req)
		return err
	}}, false)
	if err != nil {
		return lease.Released{}, err // the writer may still be at work on it: not even read
	}
	return released, nil
}

func (b *batch) release(req lease.ReleaseRequest) (lease.Released, error) {
	s, err := b.session(req.Session)
	if err != nil {
		return lease.Released{}, err
	}
	isLive := s.found && s.ended == 0 && b.now < s.expiry
	if s.found && s.ended == 0 && !isLive {
		s.end(lease.EndExpired, s.expiry)
	}
	if isLive {
		s.close(req.ClosedBelow)
		if len(req.Names) == 1 {
			n, err := b.releaseRow(req, s, req.Names[0])
			if n == 1 || err != nil {
				return lease.Released{}, err
			}
		}
	}
	rows := make([]leaseRow, 0, len(req.Names))
	for _, name := range req.Names {
		row, err := b.lease(name)
		if err != nil {
			return lease.Released{}, err
		}
		if row.token > 0 && row.acquisition == req.ID {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return b.releaseAbsent(req, s, isLive)
	}
	return b.releaseRows(req, s, rows)
}

func (b *batch) releaseRow(req lease.ReleaseRequest, s *session, name string) (int64, error) {
	result, err := b.store.stmts.release.Exec(int(lease.EndReleased), b.now, name, req.ID[:], req.Session[:], len(req.Names), s.since)
	if err != nil {
		return 0, b.fail(err)
	}
	n, err := result.RowsAffected()
	if n > 0 {
		b.wrote = true
	}
	return n, err
}

// releaseRows releases, or answers for, an acquisition whose rows still say what became of it.
func (b *batch) releaseRows(req lease.ReleaseRequest, s *session, rows []leaseRow) (lease.Released, error) {
	if rows[0].session != req.Session {
		return lease.Released{}, &lease.MismatchError{What: "session", ID: req.ID}
	}
	if how := rows[0].overBy(s, b.now); how != 0 { // others of its rows may have a successor by now
		if how == lease.EndExpired {
			return lease.Released{}, b.over(rows[0], s, how)
		}
		return b.alreadyOver(req, how)
	}
	if len(rows) != len(req.Names) || rows[0].names != len(req.Names) {
		return lease.Released{}, &lease.MismatchError{What: "names", ID: req.ID}
	}
	for _, row := range rows {
		n, err := b.releaseRow(req, s, row.name)
		if err != nil {
			return lease.Released{}, err
		}
		if n != 1 {
			return lease.Released{}, b.fail(affectedError(n))
		}
	}
	return lease.Released{}, nil
}

// releaseAbsent answers for an acquisition that no row holds, and closes the id of one that was never seen.
func (b *batch) releaseAbsent(req lease.ReleaseRequest, s *session, isLive bool) (lease.Released, error) {
	how, _, err := b.endedRecord(req.Session, req.ID)
	if err != nil {
		return lease.Released{}, err
	}
	switch {
	case how != 0:
		return b.alreadyOver(req, how)
	case !isLive, req.ID.Less(s.closedBelow):
		return lease.Released{Already: true}, nil
	case s.used(req.ID):
		return lease.Released{}, &lease.MismatchError{What: "names", ID: req.ID}
	}
	return lease.Released{Already: true}, b.writeEnded(req.ID, s, lease.EndReleased, "", b.now)
}

// alreadyOver answers a release that came too late: success if the holder itself had ended it.
func (b *batch) alreadyOver(req lease.ReleaseRequest, how lease.End) (lease.Released, error) {
	switch how {
	case lease.EndReleased, lease.EndClosed, lease.EndForgotten:
		return lease.Released{Already: true}, nil
	case lease.EndExpired, lease.EndSuperseded:
	case lease.EndRevoked:
		if _, err := b.store.stmts.tellEnded.Exec(req.Session[:], req.ID[:]); err != nil {
			return lease.Released{}, b.fail(err)
		}
		b.wrote = true
	}
	return lease.Released{}, b.endedError(req.Session, req.ID, how)
}
