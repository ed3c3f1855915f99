package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// Acquire is part of [lease.Store]. A name that somebody's fenced transaction keeps locked is waited for at most a second, or until ctx ends; the
// error is a [*lease.HeldError] then, with nothing left: its lease has expired, and its transaction has not.
func (s *Store) Acquire(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
	if err := req.Check(s.Guarantees()); err != nil {
		return nil, err
	}
	if err := s.enter("acquire"); err != nil {
		return nil, err
	}
	defer s.leave()
	req.Names = slices.Clone(req.Names)
	own := s.session(req.Session)
	if known := own.of(req.ID).names; known != nil && !sameNames(known, req.Names) {
		return nil, s.otherNames(ctx, req, known)
	}
	grants, place, err := s.acquire(ctx, own, req)
	var ended *lease.EndedError
	switch {
	case err == nil:
		own.granted(req.ID, acquired{req.Names, place})
	case errors.As(err, &ended) && ended.What == "session":
		s.forget(req.Session)
	}
	return grants, err
}

func sameNames(a, b []string) bool {
	return slices.Equal(a, b) || len(a) == len(b) && slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// otherNames answers a request under an id that is in use, or was used, for other names.
func (s *Store) otherNames(ctx context.Context, req lease.AcquireRequest, known []string) error {
	req.Names = known
	_, err := s.acquireSingly(ctx, s.session(req.Session), req)
	if err == nil || errors.Is(err, lease.ErrMismatch) || errors.Is(err, lease.ErrHeld) {
		return &lease.MismatchError{What: "names", ID: req.ID}
	}
	return err
}

// acquire returns also where the row of a grant is, if a batch has told.
func (s *Store) acquire(ctx context.Context, own *session, req lease.AcquireRequest) (grants []lease.Grant, place pgtype.TID, err error) {
	if len(req.Names) > 1 {
		grants, err = s.acquireSingly(ctx, own, req)
		return grants, place, err
	}
	c := &call{op: "acquire", id: req.ID, name: req.Names[0], acquire: &req, closedBelow: req.ClosedBelow}
	if err := own.acquires.do(ctx, s, c, s.acquireOne, s.acquireMany); err != nil {
		return nil, place, err
	}
	if c.grant != nil && c.grant.code != codeLocked { // the lane waits for nobody; singly it may
		if grants, again, err := s.granted(ctx, req, []grantRow{*c.grant}); !again {
			return grants, c.grant.place, err
		}
	}
	grants, err = s.acquireSingly(ctx, own, req)
	return grants, place, err
}

// acquireOne runs on the caller's goroutine.
func (s *Store) acquireOne(ctx context.Context, c *call) {
	row := new(grantRow)
	err := s.row(ctx, c.op, row.dest(), grantColumns+`tenure.acquire_one($1, $2, $3, $4, $5)`,
		uuid(c.acquire.Session), uuid(c.closedBelow), uuid(c.id), c.name, interval(c.acquire.MaxHold))
	if c.err = s.acquireFailed(ctx, c.id, err); err == nil {
		c.grant = row
	}
}

// acquireFailed translates, and returns nil for what another attempt may settle.
func (s *Store) acquireFailed(ctx context.Context, id fence.ID, err error) error {
	switch state(err) {
	case "":
	case stateBeginAgain, stateSerialization, stateDeadlock, stateLockTimeout:
		return nil
	case stateCheckViolation:
		// A token that was drawn is not above the row's own: the sequence stands too low, after whatever wrote to it by hand.
		s.log.ErrorContext(ctx, "the token sequence stood below a token that was granted; it is raised", "error", err)
		_, err = s.pool.Exec(ctx, `SELECT tenure.mend_sequence()`)
		return s.failed("acquire", id, false, err)
	}
	return s.failed("acquire", id, true, err)
}

// acquireMany grants what a batch can; whoever is without an answer after that asks singly.
func (s *Store) acquireMany(ctx context.Context, batch []*call) {
	ids, names := make([]pgtype.UUID, len(batch)), make([]string, len(batch))
	holds, anyHold := make([]pgtype.Interval, len(batch)), false
	var below fence.ID
	for i, c := range batch {
		ids[i], names[i], holds[i] = uuid(c.id), c.name, interval(c.acquire.MaxHold)
		anyHold = anyHold || c.acquire.MaxHold > 0
		if below.Less(c.closedBelow) {
			below = c.closedBelow
		}
	}
	if !anyHold {
		holds = nil
	}
	own := s.session(batch[0].acquire.Session)
	asOf := own.unconfirmed()
	var r batchRow
	err := s.row(ctx, "acquire", r.dest(), batchColumns+`tenure.acquire_many($1, $2, $3, $4, $5)`,
		uuid(batch[0].acquire.Session), uuid(below), ids, names, holds)
	if err == nil {
		r.deal(batch)
		if len(r.os) > 0 && r.unbroken.Valid { // a durable commit: what was lost is repeated with the next renewal
			own.confirm(asOf, s.seen(r.unbroken.Bytes))
		}
	}
	for _, c := range batch {
		c.err = s.acquireFailed(ctx, c.id, err)
	}
}

// grantRows runs a function that returns grants, in a transaction of its own.
func (s *Store) grantRows(ctx context.Context, function string, args ...any) ([]grantRow, error) {
	conn, err := s.conn(ctx, "acquire")
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, grantColumns+function, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []grantRow
	for rows.Next() {
		var row grantRow
		if err := rows.Scan(row.dest()...); err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	rows.Close() // the server's final word: the commit
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return all, replicated(conn.Conn())
}

// acquireSingly asks by the whole rule until there is an answer. At most maxSlow of a session do at once.
func (s *Store) acquireSingly(ctx context.Context, own *session, req lease.AcquireRequest) ([]lease.Grant, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	life := own.life()
	defer context.AfterFunc(life, func() { cancel(context.Cause(life)) })() // a close does not wait for what waits
	select {
	case own.slow <- struct{}{}:
		defer func() { <-own.slow }()
	case <-ctx.Done():
		return nil, &lease.UnavailableError{Op: "acquire", Err: context.Cause(ctx)}
	}
	for attempt := range maxAttempts {
		var wait time.Duration // a row that is locked has most often just been granted: the next look says so, and who waits would only queue for that
		if attempt >= looks {
			wait = waitFor(ctx, maxWait)
		}
		rows, err := s.grantRows(ctx, `tenure.acquire_rows($1, $2, $3, $4, $5, $6)`,
			uuid(req.Session), uuid(req.ClosedBelow), uuid(req.ID), req.Names, interval(req.MaxHold), wait.Milliseconds())
		if state(err) == stateLockTimeout { // a transaction that somebody left open is about to make the name
			return nil, s.locked(ctx, req)
		}
		if err != nil {
			if err := s.acquireFailed(ctx, req.ID, err); err != nil {
				return nil, err
			}
			continue
		}
		if attempt < looks && len(rows) > 0 && rows[0].code == codeLocked {
			continue
		}
		if grants, again, err := s.granted(ctx, req, rows); !again {
			return grants, err
		}
	}
	return nil, &lease.UnavailableError{Op: "acquire", Err: errTooMany}
}

// waitFor is how long a locked row may be waited for, at most: less than the caller has left, so that the refusal still reaches it.
func waitFor(ctx context.Context, most time.Duration) time.Duration {
	wait := most
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)*3/4)
	}
	return max(wait, 0)
}

// granted turns the rows of an answer into grants or an error; again is true if there was no answer yet.
func (s *Store) granted(ctx context.Context, req lease.AcquireRequest, rows []grantRow) (grants []lease.Grant, again bool, err error) {
	if len(rows) == 0 {
		return nil, true, nil
	}
	r := rows[0]
	switch int(r.code) {
	case codeDone:
		return s.grants(req, rows), false, nil
	case codeHeld:
		name := req.Names[0]
		if len(req.Names) > 1 {
			name = slices.Sorted(slices.Values(req.Names))[r.o-1]
		}
		return nil, false, &lease.HeldError{Name: name, Owner: text(r.what), Token: fence.Token(*r.token), Left: max(0, duration(r.remaining))}
	case codeOver:
		return nil, false, &lease.EndedError{What: "session", ID: req.Session, How: lease.End(r.how)}
	case codeEnded:
		return nil, false, &lease.EndedError{What: "acquisition", ID: req.ID, How: lease.End(r.how), Reason: text(r.what)}
	case codeMismatch:
		return nil, false, &lease.MismatchError{What: text(r.what), ID: req.ID}
	case codeAhead:
		return nil, false, s.ahead(ctx, text(r.what), *r.token)
	case codeIncarnation:
		_, err := s.pool.Exec(ctx, `SELECT tenure.enter_incarnation()`)
		return nil, true, s.failed("acquire", req.ID, false, err)
	case codeLocked:
		return nil, false, s.locked(ctx, req)
	}
	return nil, true, nil
}

func (s *Store) grants(req lease.AcquireRequest, rows []grantRow) []lease.Grant {
	grants := make([]lease.Grant, len(rows))
	for _, r := range rows {
		i := r.o - 1
		if len(rows) == 1 {
			i = 0 // the place in its batch is no matter
		}
		grants[i] = lease.Grant{
			Claim:     fence.Claim{Authority: s.id, Name: req.Names[i], Acquisition: req.ID, Token: fence.Token(*r.token)},
			Remaining: duration(r.remaining),
			HoldLeft:  duration(r.holdLeft),
		}
	}
	return grants
}

func (s *Store) ahead(ctx context.Context, name string, token int64) error {
	e := &fence.AheadError{Claim: fence.Claim{Authority: s.id, Name: name, Token: fence.Token(token)}}
	if err := s.pool.QueryRow(ctx, `SELECT tenure.issued()`).Scan(&e.Issued); err != nil {
		s.log.DebugContext(ctx, "the highest issued token could not be read", "error", err)
	}
	return e
}

// locked describes a name that a transaction keeps locked although nobody holds it validly, or was about to be granted.
func (s *Store) locked(ctx context.Context, req lease.AcquireRequest) error {
	held := &lease.HeldError{Name: slices.Min(req.Names)}
	for _, name := range slices.Sorted(slices.Values(req.Names)) {
		info, err := s.Get(ctx, name)
		if err != nil {
			return err
		}
		if info.Token > 0 {
			held = &lease.HeldError{Name: name, Owner: info.Owner, Token: info.Token, Left: info.Remaining}
			break
		}
	}
	if held.Token == 0 {
		return &lease.UnavailableError{Op: "acquire", Err: fmt.Errorf("the row of %q is locked", held.Name)}
	}
	return held
}
