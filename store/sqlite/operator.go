package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
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
	names, err := b.revokeRows(row, s)
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
func (b *batch) revokeRows(row leaseRow, s *session) ([]string, error) {
	rows, err := b.store.stmts.revoke.Query(int(lease.EndRevoked), b.now, row.acquisition[:], row.session[:], s.since)
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
	if !row.isOf(s) || s.ended != 0 {
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
	names, err := s.prunable(ctx, age, limit)
	if err != nil {
		return 0, &lease.UnavailableError{Op: "prune", Err: s.describe(err)}
	}
	total := 0
	for chunk := range slices.Chunk(names, maxBatch) {
		n, err := s.pruneIn(ctx, func(b *batch) (int, error) { return b.pruneLeases(age, chunk) })
		if total += n; err != nil {
			return total, err
		}
	}
	n, err := s.pruneIn(ctx, func(b *batch) (int, error) { return b.pruneEnded(age, limit-total) })
	return total + n, err
}

// prunable reads, without any lock, which names may be deleted: looking through them must keep no renewal waiting.
func (s *Store) prunable(ctx context.Context, age time.Duration, limit int) ([]string, error) {
	rows, err := s.readDB.QueryContext(ctx, `SELECT l.name FROM tenure_lease l CROSS JOIN tenure_authority a LEFT JOIN tenure_session s ON s.id = l.session
		WHERE `+overForLong("a.anchor + ?1 - ?2", "a.anchor + ?1")+` LIMIT ?3`, int64(s.kernel()), int64(age), limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, strings.Clone(name))
	}
	return names, rows.Err()
}

// overForLong is the condition under which a row l of tenure_lease, with its session s or none, may be deleted: over since
// before the one instant, and nobody may still ask for it at the other.
func overForLong(before, now string) string {
	return `(s.id IS NULL OR s.ended <> 0 OR s.expiry <= ` + now + ` OR l.acquisition < s.closed_below)
		AND CASE WHEN l.over <> 0 THEN l.over_at <= ` + before + `
			WHEN l.hold_end <> 0 AND l.hold_end <= ` + before + ` OR s.id IS NULL OR l.token <= s.since THEN 1
			WHEN s.ended <> 0 THEN s.ended_at <= ` + before + `
			ELSE s.expiry <= ` + before + ` END`
}

func (s *Store) pruneIn(ctx context.Context, prune func(*batch) (int, error)) (int, error) {
	var n int
	err := s.writer.do(ctx, &request{op: "prune", do: func(b *batch) (err error) {
		if err = b.flush(); err == nil {
			n, err = prune(b)
		}
		return err
	}}, false)
	if err != nil {
		return 0, err // the writer may still be at work on it: not even read
	}
	return n, nil
}

// flush writes the sessions that the batch has changed so far: statements over many rows read what is written.
func (b *batch) flush() error {
	for _, s := range b.sessions {
		if !s.dirty {
			continue
		}
		if err := b.saveSession(s); err != nil {
			return b.fail(err)
		}
		s.dirty, s.isNew = false, false
		b.wrote = true
	}
	return nil
}

// pruneLeases deletes those of the names that are still over for as long as when they were read.
func (b *batch) pruneLeases(age time.Duration, names []string) (int, error) {
	total := 0
	for _, name := range names {
		n, err := b.pruneBy(b.store.stmts.pruneLease, b.now-int64(age), b.now, name)
		if total += n; err != nil {
			return total, err
		}
	}
	return total, nil
}

// pruneEnded deletes records of acquisitions, then sessions, by their indexes.
func (b *batch) pruneEnded(age time.Duration, limit int) (int, error) {
	if limit <= 0 {
		return 0, nil
	}
	n, err := b.pruneBy(b.store.stmts.pruneEnds, b.now-int64(age), b.now, limit)
	if err != nil || n == limit {
		return n, err
	}
	m, err := b.pruneBy(b.store.stmts.pruneSessions, b.now-int64(age), b.now, limit-n)
	return n + m, err
}

func (b *batch) pruneBy(stmt *sql.Stmt, args ...any) (int, error) {
	result, err := stmt.Exec(args...)
	if err != nil {
		return 0, b.fail(err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, b.fail(err)
	}
	b.wrote = b.wrote || n > 0
	return int(n), nil
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

const (
	maxEpoch = 1 << 62 // leaves room for the tokens after it
	maxAhead = 1024    // names that are stopped at the same time
)

func (b *batch) countAhead() (n int, err error) {
	if err := b.store.stmts.countAhead.QueryRow().Scan(&n); err != nil {
		return 0, b.fail(err)
	}
	return n, nil
}

// ReportAhead stops grants for the claim's name until the epoch is raised, if its token is above everything that this
// authority has issued: the file was restored from a copy, and the tokens in between may come again. [Store.Fenced]
// reports by itself; a caller of [Verify], [Enter] or [Admit] does so after its transaction was rolled back.
func (s *Store) ReportAhead(ctx context.Context, claim fence.Claim) error {
	if err := claim.Check(); err != nil {
		return err
	}
	if claim.Authority != s.id || claim.Token > maxEpoch {
		return nil // no epoch can be raised to such a token: it was made up, by whoever
	}
	return s.writer.do(ctx, &request{op: "report", do: func(b *batch) error {
		if int64(claim.Token) <= b.auth.issued {
			return nil
		}
		if count, err := b.countAhead(); err != nil || count >= maxAhead {
			return err // one more of so many says nothing new
		}
		b.wrote = true
		if _, err := b.store.stmts.insertAhead.Exec(claim.Name, int64(claim.Token)); err != nil {
			return b.fail(err)
		}
		b.auth.ahead = true
		return nil
	}}, false)
}
