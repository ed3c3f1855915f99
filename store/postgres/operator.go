package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

const infoColumns = `SELECT name, token, held, acquisition, session, owner, remaining, hold_left, how FROM `

func scanInfo(row pgx.CollectableRow) (lease.Info, error) {
	var info lease.Info
	var acquisition, session pgtype.UUID
	var owner, how *string
	var remaining, holdLeft pgtype.Interval
	err := row.Scan(&info.Name, &info.Token, &info.Held, &acquisition, &session, &owner, &remaining, &holdLeft, &how)
	info.Acquisition, info.Session, info.Owner = acquisition.Bytes, session.Bytes, text(owner)
	info.Remaining, info.HoldLeft = duration(remaining), duration(holdLeft)
	info.End = endNamed(text(how))
	return info, err
}

// endNamed is the end that its word names.
func endNamed(word string) lease.End {
	for end := lease.EndReleased; end <= lease.EndForgotten; end++ {
		if end.String() == word {
			return end
		}
	}
	return 0
}

func (s *Store) infos(ctx context.Context, op, sql string, args ...any) ([]lease.Info, error) {
	if err := s.enter(op); err != nil {
		return nil, err
	}
	defer s.leave()
	rows, err := s.pool.Query(ctx, infoColumns+sql, args...)
	if err != nil {
		return nil, s.failed(op, fence.ID{}, false, err)
	}
	infos, err := pgx.CollectRows(rows, scanInfo)
	return infos, s.failed(op, fence.ID{}, false, err)
}

// Get is part of [lease.Store].
func (s *Store) Get(ctx context.Context, name string) (lease.Info, error) {
	if err := lease.CheckName(name); err != nil {
		return lease.Info{}, err
	}
	infos, err := s.infos(ctx, "get", `tenure.lease_of($1)`, name)
	if err != nil || len(infos) == 0 {
		return lease.Info{}, err
	}
	return infos[0], nil
}

// List is part of [lease.Lister].
func (s *Store) List(ctx context.Context, req lease.ListRequest) ([]lease.Info, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	return s.infos(ctx, "list", `tenure.leases($1, $2, $3)`, req.Prefix, req.After, req.Limit)
}

// Revoke is part of [lease.Revoker].
func (s *Store) Revoke(ctx context.Context, req lease.RevokeRequest) (lease.Revoked, error) {
	if err := req.Check(); err != nil {
		return lease.Revoked{}, err
	}
	former, err := s.Get(ctx, req.Name)
	if err != nil {
		return lease.Revoked{}, err
	}
	var code, how *int16
	var token int64
	var acquisition pgtype.UUID
	var names []string
	var believes pgtype.Interval
	var reason *string
	err = s.again("revoke", func() (bool, error) {
		err := s.one(ctx, "revoke", former.Acquisition, []any{&code, &how, &token, &acquisition, &names, &believes, &reason},
			`SELECT code, how, token, acquisition, names, believes, reason FROM tenure.lease_revoke($1, $2, $3)`, req.Name, int64(req.Token), req.Reason)
		return codeOf(code) == codeAgain, err
	})
	if err != nil {
		return lease.Revoked{}, err
	}
	switch codeOf(code) {
	case codeMismatch:
		return lease.Revoked{}, &lease.MismatchError{What: "token", ID: acquisition.Bytes, Name: req.Name, Seen: fence.Token(token)}
	case codeEnded:
		return lease.Revoked{}, &lease.EndedError{What: "acquisition", ID: acquisition.Bytes, How: endOf(how), Reason: text(reason)}
	case codeLocked:
		return lease.Revoked{}, &lease.UnavailableError{Op: "revoke", Err: fmt.Errorf("a transaction keeps the row of %q, or of another name of its acquisition, locked: a fenced one, most likely; revoke again when it has ended", req.Name)}
	case codeAlready:
		return lease.Revoked{Already: true, Former: former, BelievesAtMost: duration(believes)}, nil
	}
	return lease.Revoked{Former: former, Names: names, BelievesAtMost: duration(believes)}, nil
}

// Prune is part of [lease.Pruner].
func (s *Store) Prune(ctx context.Context, age time.Duration, limit int) (int, error) {
	if age < lease.MinPruneAge || limit < 1 || limit > lease.MaxPrune {
		return 0, &lease.InvalidError{Field: "prune", Problem: fmt.Sprintf("want an age of at least %v and a limit of 1 to %d", lease.MinPruneAge, lease.MaxPrune)}
	}
	var n int
	err := s.one(ctx, "prune", fence.ID{}, []any{&n}, `SELECT tenure.prune($1, $2)`, interval(age), limit)
	return n, err
}

const maxEpoch = 1 << 62 // leaves room for the tokens after it

// RaiseEpoch is part of [lease.EpochRaiser].
func (s *Store) RaiseEpoch(ctx context.Context, above fence.Token) (fence.Token, error) {
	if above < 0 || above > maxEpoch {
		return 0, &lease.InvalidError{Field: "above", Problem: fmt.Sprintf("want a token from 0 to %d", int64(maxEpoch))}
	}
	var floor fence.Token
	err := s.one(ctx, "raise epoch", fence.ID{}, []any{&floor}, `SELECT tenure.epoch_raise($1)`, int64(above))
	return floor, err
}

// ReportAhead stops grants for the claim's name until the epoch is raised, if its token is above everything that this
// authority has issued: the database was restored or promoted without its last commits, and the tokens in between may come again.
// [Store.Fenced] reports by itself; a caller of [Verify], [Enter] or [Admit] does so after its transaction was rolled back.
func (s *Store) ReportAhead(ctx context.Context, claim fence.Claim) error {
	if err := claim.Check(); err != nil {
		return err
	}
	var none any
	return s.one(ctx, "report", claim.Acquisition, []any{&none}, `SELECT tenure.report_ahead($1, $2, $3)::text`, uuid(claim.Authority), claim.Name, int64(claim.Token))
}
