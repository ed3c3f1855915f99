package sqlite

import (
	"database/sql"
	"errors"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// asID reads an id column. A damaged file may hold anything in it: what is short names nothing.
func asID(column []byte) (id fence.ID) {
	copy(id[:], column)
	return id
}

// leaseRow is a row of tenure_lease; token 0 stands for no row.
type leaseRow struct {
	name             string
	token            int64
	acquisition      fence.ID
	names            int
	session          fence.ID
	maxHold, holdEnd int64
	over             lease.End
	overAt           int64
}

func (b *batch) lease(name string) (leaseRow, error) {
	row := leaseRow{name: name}
	var acquisition, session []byte
	var over int
	err := b.store.stmts.lease.QueryRow(name).Scan(&row.token, &acquisition, &row.names, &session, &row.maxHold, &row.holdEnd, &over, &row.overAt)
	if errors.Is(err, sql.ErrNoRows) {
		return row, nil
	}
	if err != nil {
		return row, b.fail(err)
	}
	row.over = lease.End(over)
	copy(row.acquisition[:], acquisition)
	copy(row.session[:], session)
	return row, nil
}

// isOf reports whether the row's acquisition is of this very session. Sessions that are over are forgotten, before the rows of
// names are; when the id of one is opened again, what was granted before that is not the new session's.
func (r leaseRow) isOf(s *session) bool { return s.found && r.token > s.since }

// overBy says how the row's acquisition ended, given its session, or 0 while it is valid.
func (r leaseRow) overBy(s *session, now int64) lease.End {
	switch {
	case r.over != 0:
		return r.over
	case !r.isOf(s):
		return lease.EndForgotten
	case s.ended != 0:
		return s.ended
	case now >= s.expiry, r.holdEnd != 0 && now >= r.holdEnd:
		return lease.EndExpired
	}
	return 0
}

func (r leaseRow) holdLeft(now int64) time.Duration {
	if r.holdEnd == 0 {
		return 0
	}
	return max(0, time.Duration(r.holdEnd-now))
}

// info describes the row for people.
func (r leaseRow) info(s *session, now int64) lease.Info {
	info := lease.Info{Name: r.name, Token: fence.Token(r.token), Acquisition: r.acquisition, Session: r.session, Owner: s.owner}
	if !r.isOf(s) {
		info.Owner = "" // of another session, if of any
	}
	if info.End = r.overBy(s, now); info.End == 0 {
		info.Held, info.Remaining, info.HoldLeft = true, s.remaining(now), r.holdLeft(now)
	}
	return info
}

// endedRecord looks up how an acquisition ended, when that stands apart from its lease row.
func (b *batch) endedRecord(session, id fence.ID) (lease.End, string, error) {
	var how int
	var reason string
	err := b.store.stmts.ended.QueryRow(session[:], id[:]).Scan(&how, &reason)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, "", nil
	}
	if err != nil {
		return 0, "", b.fail(err)
	}
	return lease.End(how), reason, nil
}

// writeEnded remembers how an acquisition ended. A session that is over needs no bound: nothing is granted to it.
func (b *batch) writeEnded(id fence.ID, s *session, how lease.End, reason string, at int64) error {
	told := how != lease.EndRevoked
	if _, err := b.store.stmts.insertEnded.Exec(s.id[:], id[:], int(how), reason, told, at); err != nil {
		return b.fail(err)
	}
	b.wrote = true
	if s.found && s.ended == 0 && s.endedUpTo.Less(id) {
		s.endedUpTo, s.dirty = id, true
	}
	return nil
}

// over answers for an acquisition whose row says that it is over. That MaxHold has passed is a verdict once it
// is told: it is written, and a later successor does not change it.
func (b *batch) over(row leaseRow, s *session, how lease.End) error {
	err := b.endedError(row.session, row.acquisition, how)
	var ended *lease.EndedError
	if row.over == 0 && s.ended == 0 && errors.As(err, &ended) && ended.How == lease.EndExpired {
		if err := affected(b.store.stmts.settle.Exec(int(lease.EndExpired), row.name, row.acquisition[:])); err != nil {
			return b.fail(err)
		}
		b.wrote = true
	}
	return err
}

// endedError answers for an acquisition that is over. A record knows more than the row: the reason of a
// revocation, and that a successor took another name of the same acquisition.
func (b *batch) endedError(session, id fence.ID, how lease.End) error {
	e := &lease.EndedError{What: "acquisition", ID: id, How: how}
	if how == lease.EndRevoked || how == lease.EndExpired {
		recorded, reason, err := b.endedRecord(session, id)
		if err != nil {
			return err
		}
		if recorded != 0 {
			e.How, e.Reason = recorded, reason
		}
	}
	return e
}
