package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// Release is part of [lease.Store]. The plain case is told before it is on disk, unless SyncRelease was asked for: where the
// server crashes before that, the session's next renewal repeats it.
func (s *Store) Release(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
	if err := req.Check(); err != nil {
		return lease.Released{}, err
	}
	return s.release(ctx, req, s.opts.SyncRelease)
}

func (s *Store) release(ctx context.Context, req lease.ReleaseRequest, sync bool) (lease.Released, error) {
	if err := s.enter("release"); err != nil {
		return lease.Released{}, err
	}
	defer s.leave()
	own := s.session(req.Session)
	names := append([]string(nil), req.Names...)
	known := own.of(req.ID)
	if known.names != nil && !sameNames(known.names, names) {
		if own.isHeld(req.ID) {
			return lease.Released{}, &lease.MismatchError{What: "names", ID: req.ID}
		}
		names = known.names
	}
	if len(names) == 1 {
		c := &call{op: "release", id: req.ID, name: names[0], closedBelow: req.ClosedBelow, place: known.place, sync: sync || !own.mayReleaseAsync()}
		mark := own.mark()
		one := func(ctx context.Context, c *call) { s.releaseOne(ctx, req.Session, c) }
		many := func(ctx context.Context, batch []*call) { s.releaseMany(ctx, req.Session, batch) } // for others' calls too
		if err := own.releases.do(ctx, s, c, one, many); err != nil {
			return lease.Released{}, err
		}
		if c.released {
			own.ended(req.ID, names)
			if !c.sync {
				own.releasedAsync(req.ID, names[0], mark)
			}
			return lease.Released{}, nil
		}
	}
	released, err := s.releaseSingly(ctx, req, names)
	if err == nil || errors.Is(err, lease.ErrEnded) {
		own.ended(req.ID, names)
	}
	return released, err
}

// asynchronous stands beside a release, which is a transaction of its own: the setting is looked at when it commits. The functions
// themselves never lower anything.
const asynchronous = `set_config('synchronous_commit', 'off', true), `

func (s *Store) releaseOne(ctx context.Context, session fence.ID, c *call) {
	err := s.releaseCall(ctx, c.sync, &c.released, `tenure.release_one($1, $2, $3, $4)`, uuid(session), uuid(c.closedBelow), uuid(c.id), c.name)
	c.err = s.releaseFailed(c.id, err)
}

// releaseMany is durable if any of its calls must be.
func (s *Store) releaseMany(ctx context.Context, session fence.ID, batch []*call) {
	ids, names, places := make([]pgtype.UUID, len(batch)), make([]string, len(batch)), make([]pgtype.TID, len(batch))
	var below fence.ID
	sync := false
	for i, c := range batch {
		ids[i], names[i], places[i] = uuid(c.id), c.name, c.place
		sync = sync || c.sync
		if below.Less(c.closedBelow) {
			below = c.closedBelow
		}
	}
	var done []int32
	err := s.releaseCall(ctx, sync, &done, `tenure.release_many($1, $2, $3, $4, $5)`, uuid(session), uuid(below), ids, names, places)
	for _, c := range batch {
		c.err = s.releaseFailed(c.id, err)
	}
	for _, o := range done {
		batch[o-1].released = true
	}
}

// releaseFailed translates, and returns nil for what another attempt may settle.
func (s *Store) releaseFailed(id fence.ID, err error) error {
	switch state(err) {
	case stateSerialization, stateDeadlock, stateLockTimeout:
		return nil
	}
	return s.failed("release", id, true, err)
}

// releaseCall runs a release in a transaction of its own, which may be asynchronous.
func (s *Store) releaseCall(ctx context.Context, sync bool, dest any, call string, args ...any) error {
	if sync {
		return s.row(ctx, "release", []any{dest}, `SELECT `+call, args...)
	}
	return s.row(ctx, "release", []any{nil, dest}, `SELECT `+asynchronous+call, args...)
}

// releaseSingly decides by the whole rule, durably.
func (s *Store) releaseSingly(ctx context.Context, req lease.ReleaseRequest, names []string) (lease.Released, error) {
	var code, how *int16
	var what *string
	for range maxAttempts {
		err := s.one(ctx, "release", req.ID, []any{&code, &how, &what}, `SELECT code, how, what FROM tenure.release_rows($1, $2, $3, $4)`,
			uuid(req.Session), uuid(req.ID), names, waitFor(ctx, maxWait).Milliseconds())
		if err == nil && codeOf(code) == codeAbsent {
			err = s.one(ctx, "release", req.ID, []any{&code, &how, &what}, `SELECT code, how, what FROM tenure.release_absent($1, $2, $3, $4)`,
				uuid(req.Session), uuid(req.ClosedBelow), uuid(req.ID), names)
		}
		if err != nil {
			return lease.Released{}, err
		}
		switch codeOf(code) {
		case codeDone:
			return lease.Released{}, nil
		case codeAlready:
			return lease.Released{Already: true}, nil
		case codeEnded:
			return lease.Released{}, &lease.EndedError{What: "acquisition", ID: req.ID, How: endOf(how), Reason: text(what)}
		case codeMismatch:
			return lease.Released{}, &lease.MismatchError{What: text(what), ID: req.ID}
		case codeLocked:
			if ctx.Err() != nil {
				return lease.Released{}, &lease.UnavailableError{Op: "release", Err: context.Cause(ctx)}
			}
		}
	}
	return lease.Released{}, &lease.UnavailableError{Op: "release", Err: errTooMany}
}
