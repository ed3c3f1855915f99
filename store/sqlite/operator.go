package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// Revoke is part of [lease.Revoker].
func (s *Store) Revoke(ctx context.Context, req lease.RevokeRequest) (lease.Revoked, error) {
	if err := req.Check(); err != nil {
		return lease.Revoked{}, err
	}
	var revoked lease.Revoked
	err := s.writer.do(ctx, &request{op: "revoke", do: func(b *batch) (err error) {
		revoked, err = b.revoke(req)
		return err
	}}, true)
	if err != nil {
		return lease.Revoked{}, err // the writer may still be at work on it: not even read
	}
	return revoked, nil
}

func (b *batch) revoke(req lease.RevokeRequest) (lease.Revoked, error) {
	row, err := b.lease(req.Name)
	if err != nil {
		return lease.Revoked{}, err
	}
	if row.token == 0 || fence.Token(row.token) != req.Token {
		return lease.Revoked{}, &lease.MismatchError{What: "token", ID: row.acquisition, Name: req.Name, Seen: fence.Token(row.token)}
	}
	s, err := b.session(row.session)
	if err != nil {
		return lease.Revoked{}, err
	}
	former := row.info(s, b.now)
	if former.End == lease.EndRevoked {
		return lease.Revoked{Already: true, Former: former, BelievesAtMost: b.beliefLeft(row, s)}, nil
	}
	if former.End != 0 {
		return lease.Revoked{}, b.endedError(row.session, row.acquisition, former.End)
	}
	names, err := b.revokeRows(row)
	if err != nil {
		return lease.Revoked{}, err
	}
	if err := b.writeEnded(row.acquisition, s, lease.EndRevoked, req.Reason, b.now); err != nil {
		return lease.Revoked{}, err
	}
	return lease.Revoked{Former: former, Names: names, BelievesAtMost: b.beliefLeft(row, s)}, nil
}

// revokeRows frees every name of the acquisition. There is no index on acquisitions, it would burden every
// grant: an operator's call reads the table.
func (b *batch) revokeRows(row leaseRow) ([]string, error) {
	rows, err := b.store.stmts.revoke.Query(int(lease.EndRevoked), b.now, row.acquisition[:])
	if err != nil {
		return nil, b.fail(err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, b.fail(err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		return nil, b.fail(err)
	}
	if len(names) != row.names {
		return nil, b.fail(affectedError(int64(len(names))))
	}
	b.wrote = true
	slices.Sort(names)
	return names, nil
}

func affectedError(n int64) error {
	return fmt.Errorf("a write moved %d rows, not as many as were read", n)
}

// beliefLeft is how long the holder may believe that it holds, if it learns nothing.
func (b *batch) beliefLeft(row leaseRow, s *session) time.Duration {
	if !s.found || s.ended != 0 {
		return 0
	}
	left := s.remaining(b.now)
	if row.holdEnd != 0 {
		left = min(left, row.holdLeft(b.now))
	}
	return max(0, left)
}

// Prune is part of [lease.Pruner].
func (s *Store) Prune(ctx context.Context, age time.Duration, limit int) (int, error) {
	if age < lease.MinPruneAge || limit < 1 || limit > lease.MaxPrune {
		return 0, &lease.InvalidError{Field: "prune", Problem: fmt.Sprintf("want an age of at least %v and a limit of 1 to %d", lease.MinPruneAge, lease.MaxPrune)}
	}
	var n int
	err := s.writer.do(ctx, &request{op: "prune", do: func(b *batch) (err error) {
		n, err = b.prune(age, limit)
		return err
	}}, false)
	if err != nil {
		return 0, err // the writer may still be at work on it: not even read
	}
	return n, nil
}

// prune deletes leases first, then the sessions that no row but an old one names, then records of acquisitions.
func (b *batch) prune(age time.Duration, limit int) (int, error) {
	st := b.store.stmts
	before, total := b.now-int64(age), 0
	for _, s := range b.sessions { // the statements read the rows, so these must be what the batch knows
		if s.dirty && !s.isNew {
			if err := b.saveSession(s); err != nil {
				return 0, b.fail(err)
			}
			s.dirty = false
			b.wrote = true
		}
	}
	for _, step := range []*sql.Stmt{st.pruneLeases, st.pruneEnds, st.pruneSessions} {
		if total >= limit {
			break
		}
		result, err := step.Exec(before, limit-total, b.now)
		if err != nil {
			return 0, b.fail(err)
		}
		n, err := result.RowsAffected()
		if err != nil {
			return 0, b.fail(err)
		}
		total += int(n)
	}
	b.wrote = b.wrote || total > 0
	return total, nil
}

// RaiseEpoch is part of [lease.EpochRaiser].
func (s *Store) RaiseEpoch(ctx context.Context, above fence.Token) (fence.Token, error) {
	if above < 0 || above > maxEpoch {
		return 0, &lease.InvalidError{Field: "above", Problem: fmt.Sprintf("want a token from 0 to %d", int64(maxEpoch))}
	}
	var floor fence.Token
	err := s.writer.do(ctx, &request{op: "raise epoch", do: func(b *batch) error {
		b.jump()
		b.auth.issued = max(b.auth.issued, int64(above))
		floor = fence.Token(b.auth.issued)
		if _, err := b.store.stmts.dropAhead.Exec(b.auth.issued); err != nil {
			return b.fail(err)
		}
		return nil
	}}, false)
	if err != nil {
		return 0, err // the writer may still be at work on it: not even read
	}
	return floor, nil
}

// maxEpoch leaves room for the tokens after it.
const maxEpoch = 1 << 62

// ReportAhead stops grants for the claim's name until the epoch is raised, if its token is above everything that this
// authority has issued: the file was restored from a copy, and the tokens in between may come again. [Store.Fenced]
// reports by itself; a caller of [Verify], [Enter] or [Admit] does so after its transaction was rolled back.
func (s *Store) ReportAhead(ctx context.Context, claim fence.Claim) error {
	if err := claim.Check(); err != nil {
		return err
	}
	if claim.Authority != s.id {
		return nil
	}
	return s.writer.do(ctx, &request{op: "report", do: func(b *batch) error {
		if int64(claim.Token) <= b.auth.issued {
			return nil
		}
		b.wrote = true
		if _, err := b.store.stmts.insertAhead.Exec(claim.Name, int64(claim.Token)); err != nil {
			return b.fail(err)
		}
		b.auth.ahead = true
		return nil
	}}, false)
}
