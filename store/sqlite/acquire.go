package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// Acquire is part of [lease.Store].
func (s *Store) Acquire(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
	if err := req.Check(s.Guarantees()); err != nil {
		return nil, err
	}
	req.Names = slices.Clone(req.Names) // the writer may read it after the caller's context has ended
	var grants []lease.Grant
	r := &request{op: "acquire", id: req.ID, acquire: &req, do: func(b *batch) (err error) {
		grants, err = b.acquire(req)
		return err
	}}
	if err := s.writer.do(ctx, r, false); err != nil {
		return nil, err
	}
	return grants, nil
}

func (b *batch) acquire(req lease.AcquireRequest) ([]lease.Grant, error) {
	own, err := b.live(req.Session)
	if err != nil {
		return nil, err
	}
	below := own.closedBelow
	if below.Less(req.ClosedBelow) {
		below = req.ClosedBelow
	}
	fresh := !req.ID.Less(below) && own.endedUpTo.Less(req.ID) && !own.used(req.ID) && !b.auth.ahead
	if fresh && len(req.Names) == 1 {
		grants, err := b.acquireFast(req, own, below)
		if grants != nil || err != nil {
			return grants, err
		}
	}
	rows, err := b.acquireRows(req, own, below)
	if err != nil {
		return nil, err
	}
	if rows[0].acquisition == req.ID && rows[0].token > 0 {
		return b.grants(req, own, rows), nil
	}
	return b.grantAll(req, own, below, rows)
}

// acquireFast grants a name that is new, or whose last acquisition needs no record, in one statement. It
// returns neither grants nor an error when the rows must be looked at first.
func (b *batch) acquireFast(req lease.AcquireRequest, own *session, below fence.ID) ([]lease.Grant, error) {
	before := b.auth
	row := b.newRow(req, own, req.Names[0])
	result, err := b.store.stmts.grant.Exec(row.name, row.token, row.acquisition[:], row.session[:], row.maxHold, row.holdEnd, below[:])
	if err != nil {
		return nil, b.fail(err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		b.auth = before // the token that was drawn is in no row: a refusal writes nothing
		return nil, err
	}
	own.close(below)
	own.remember(req.ID)
	return b.grants(req, own, []leaseRow{row}), nil
}

func (b *batch) newRow(req lease.AcquireRequest, own *session, name string) leaseRow {
	row := leaseRow{name: name, token: b.token(), acquisition: req.ID, names: len(req.Names), session: own.id, maxHold: int64(req.MaxHold)}
	if req.MaxHold > 0 {
		row.holdEnd = b.now + int64(req.MaxHold)
	}
	return row
}

// acquireRows reads the rows of all names, in byte order, and returns them if the request may go on: either
// they are all granted to req.ID already, or all free.
func (b *batch) acquireRows(req lease.AcquireRequest, own *session, below fence.ID) ([]leaseRow, error) {
	rows := make([]leaseRow, len(req.Names))
	mine := 0
	for i, name := range slices.Sorted(slices.Values(req.Names)) {
		row, err := b.lease(name)
		if err != nil {
			return nil, err
		}
		if rows[i] = row; row.token > 0 && row.acquisition == req.ID {
			mine++
		}
	}
	if mine > 0 {
		return rows, b.checkRepeat(req, own, rows, mine)
	}
	if err := b.checkFresh(req, own, below); err != nil {
		return nil, err
	}
	return rows, b.checkFree(rows)
}

// checkRepeat decides about a request under an id that holds, or held, at least one of its names.
func (b *batch) checkRepeat(req lease.AcquireRequest, own *session, rows []leaseRow, mine int) error {
	for _, row := range rows {
		if row.acquisition != req.ID {
			continue
		}
		if row.session != req.Session {
			return &lease.MismatchError{What: "session", ID: req.ID}
		}
		if how := row.overBy(own, b.now); how != 0 {
			return b.over(row, own, how)
		}
		if row.maxHold != int64(req.MaxHold) {
			return &lease.MismatchError{What: "max hold", ID: req.ID}
		}
		if mine != len(rows) || row.names != len(rows) {
			return &lease.MismatchError{What: "names", ID: req.ID}
		}
	}
	return nil
}

// checkFresh refuses an id that is over or in use elsewhere.
func (b *batch) checkFresh(req lease.AcquireRequest, own *session, below fence.ID) error {
	if !own.endedUpTo.Less(req.ID) {
		how, _, err := b.endedRecord(req.Session, req.ID)
		if err != nil {
			return err
		}
		if how != 0 {
			return b.endedError(req.Session, req.ID, how)
		}
	}
	if req.ID.Less(below) {
		return &lease.EndedError{What: "acquisition", ID: req.ID, How: lease.EndForgotten}
	}
	if own.used(req.ID) {
		return &lease.MismatchError{What: "names", ID: req.ID}
	}
	return nil
}

func (b *batch) checkFree(rows []leaseRow) error {
	if err := b.checkAhead(rows); err != nil {
		return err
	}
	for _, row := range rows {
		if row.token > 0 {
			holder, err := b.session(row.session)
			if err != nil {
				return err
			}
			if row.overBy(holder, b.now) == 0 {
				left := holder.remaining(b.now)
				if row.holdEnd != 0 {
					left = min(left, row.holdLeft(b.now))
				}
				return &lease.HeldError{Name: row.name, Owner: holder.owner, Token: fence.Token(row.token), Left: left}
			}
		}
	}
	return nil
}

// checkAhead refuses a name of which a token from the future was seen, held or not: waiting would not help.
func (b *batch) checkAhead(rows []leaseRow) error {
	if !b.auth.ahead {
		return nil
	}
	for _, row := range rows {
		var token int64
		err := b.store.stmts.ahead.QueryRow(row.name).Scan(&token)
		if err == nil {
			return &fence.AheadError{Claim: fence.Claim{Authority: b.store.id, Name: row.name, Token: fence.Token(token)}, Issued: fence.Token(b.auth.issued)}
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return b.fail(err)
		}
	}
	return nil
}

// grantAll takes every name over from whoever had it last. Tokens are drawn in byte order of the names.
func (b *batch) grantAll(req lease.AcquireRequest, own *session, below fence.ID, rows []leaseRow) ([]lease.Grant, error) {
	for i, old := range rows {
		if err := b.bury(old); err != nil {
			return nil, err
		}
		row := b.newRow(req, own, old.name)
		err := affected(b.store.stmts.regrant.Exec(row.name, row.token, row.acquisition[:], row.names, row.session[:], row.maxHold, row.holdEnd, old.token))
		if err != nil {
			return nil, b.fail(err)
		}
		rows[i] = row
	}
	own.close(below)
	own.remember(req.ID)
	return b.grants(req, own, rows), nil
}

// bury keeps what the row said of its last acquisition, as far as somebody may still ask, before the row is
// overwritten; and writes the verdict over a session that is found expired.
func (b *batch) bury(old leaseRow) error {
	if old.token == 0 {
		return nil
	}
	s, err := b.session(old.session)
	if err != nil {
		return err
	}
	if s.found && s.ended == 0 && b.now >= s.expiry {
		s.end(lease.EndExpired, s.expiry)
	}
	switch {
	case s.found && s.ended == 0 && !old.isOf(s): // how it ended is forgotten; that it did must not be, while its session's id lives
		return b.writeEnded(old.acquisition, s, lease.EndForgotten, "", b.now)
	case old.over == lease.EndRevoked, !s.found, s.ended == lease.EndClosed:
		return nil
	case old.over == lease.EndReleased && (s.ended != 0 || old.acquisition.Less(s.closedBelow)):
		return nil
	case old.over != 0:
		return b.writeEnded(old.acquisition, s, old.over, "", old.overAt)
	case s.ended != 0:
		return b.writeEnded(old.acquisition, s, lease.EndExpired, "", s.endedAt)
	}
	return b.writeEnded(old.acquisition, s, lease.EndSuperseded, "", old.holdEnd)
}

// grants answers in the order of the request.
func (b *batch) grants(req lease.AcquireRequest, own *session, rows []leaseRow) []lease.Grant {
	grants := make([]lease.Grant, len(req.Names))
	for i, name := range req.Names {
		at := 0
		if len(rows) > 1 {
			at, _ = slices.BinarySearchFunc(rows, name, func(r leaseRow, n string) int { return strings.Compare(r.name, n) })
		}
		grants[i] = lease.Grant{
			Claim:     fence.Claim{Authority: b.store.id, Name: name, Acquisition: req.ID, Token: fence.Token(rows[at].token)},
			Remaining: own.remaining(b.now),
			HoldLeft:  rows[at].holdLeft(b.now),
		}
	}
	return grants
}

// heldRow is a name that some acquisition holds validly.
type heldRow struct {
	name, owner     string
	token           int64
	acquisition     fence.ID
	holdEnd, expiry int64
	bootID          string
	anchor, mark    int64
	ahead           bool // some name is stopped
}

// findHeld returns the refusals that one read without any lock can decide. What it cannot decide, or fails to
// read, is left to the batch.
func (s *Store) findHeld(waiting []*request) map[*request]*lease.HeldError {
	rows, err := s.heldRows(waiting)
	if err != nil || len(rows) == 0 {
		return nil
	}
	held := make(map[string]heldRow, len(rows))
	for _, row := range rows {
		now := row.anchor + int64(s.kernel())
		if row.ahead || row.bootID != s.bootID || now < row.mark {
			return nil // only the batch can answer, or mend the clock
		}
		if now < row.expiry && (row.holdEnd == 0 || now < row.holdEnd) {
			held[row.name] = row
		}
	}
	refused := make(map[*request]*lease.HeldError)
	for _, r := range waiting {
		first, repeated := firstHeld(held, *r.acquire)
		if first == nil || repeated || !s.plainRequest(*r.acquire, first.anchor) {
			continue
		}
		left := time.Duration(first.expiry - first.anchor - int64(s.kernel()))
		if first.holdEnd != 0 {
			left = min(left, time.Duration(first.holdEnd-first.anchor-int64(s.kernel())))
		}
		refused[r] = &lease.HeldError{Name: first.name, Owner: first.owner, Token: fence.Token(first.token), Left: max(0, left)}
	}
	return refused
}

// firstHeld returns the first held name of the request in byte order, and whether the request's own
// acquisition holds any of them: then it is a repetition, which the batch answers.
func firstHeld(held map[string]heldRow, req lease.AcquireRequest) (first *heldRow, repeated bool) {
	for _, name := range req.Names {
		row, ok := held[name]
		if !ok {
			continue
		}
		if row.acquisition == req.ID {
			return nil, true
		}
		if first == nil || name < first.name {
			first = &row
		}
	}
	return first, false
}

func (s *Store) heldRows(waiting []*request) ([]heldRow, error) {
	var rows *sql.Rows
	var err error
	if len(waiting) == 1 && len(waiting[0].acquire.Names) == 1 {
		rows, err = s.stmts.heldOne.Query(waiting[0].acquire.Names[0])
	} else {
		var names []string
		for _, r := range waiting {
			names = append(names, r.acquire.Names...)
		}
		list, jsonErr := json.Marshal(names)
		if jsonErr != nil {
			return nil, jsonErr
		}
		rows, err = s.stmts.heldMany.Query(string(list))
	}
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []heldRow
	for rows.Next() {
		var row heldRow
		var acquisition []byte
		if err := rows.Scan(&row.name, &row.token, &acquisition, &row.holdEnd, &row.owner, &row.expiry, &row.bootID, &row.anchor, &row.mark, &row.ahead); err != nil {
			return nil, err
		}
		copy(row.acquisition[:], acquisition)
		found = append(found, row)
	}
	return found, rows.Err()
}

// plainRequest reports whether a refusal as held is the right answer to req: its session is live and its id
// is neither over nor in use.
func (s *Store) plainRequest(req lease.AcquireRequest, anchor int64) bool {
	b := &batch{store: s, now: anchor + int64(s.kernel()), sessions: make(map[fence.ID]*session)}
	own, err := b.session(req.Session)
	if err != nil || !own.found || own.ended != 0 || b.now >= own.expiry || !own.endedUpTo.Less(req.ID) {
		return false
	}
	return !req.ID.Less(own.closedBelow) && !req.ID.Less(req.ClosedBelow) && !own.used(req.ID)
}
