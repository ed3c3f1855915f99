package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"

	lib "modernc.org/sqlite/lib"
)

// batch is one write transaction and what it has read so far. A request's refusal is its result; an SQL error
// ends the whole batch, because SQLite may have rolled it back already.
type batch struct {
	store    *Store
	now      int64 // authority time, read after the writer lock was won
	auth     authority
	sessions map[fence.ID]*session
	wrote    bool  // a lease, a mark or an end was written
	extra    int   // lines of holds that were handled beyond the weights of their requests
	err      error // the SQL error that ended the batch
}

type authority struct {
	origin, issued, anchor, mark int64
	incarnation                  []byte
	bootID                       string
	ahead                        bool // some name is stopped
	dirty                        bool
}

// session is a row of tenure_session.
type session struct {
	id           fence.ID
	since        int64 // the counter when it was opened: see leaseRow.isOf
	owner        string
	ttl, expiry  int64
	closedBelow  fence.ID
	recent       []byte
	endedUpTo    fence.ID // tenure_ended has no acquisition of it above this one
	ended        lease.End
	endedAt      int64
	found, isNew bool
	dirty        bool
}

// commit runs the requests in one transaction. When an SQL error ends it, each is run again alone, so that
// strangers do not share a fate. The results are not told yet. It returns an error when the store must stop.
func (s *Store) commit(requests []*request) error {
	if err := s.begin(); err != nil {
		for _, r := range requests {
			r.result = s.failed(r.op, r.id, false, err)
		}
		return nil
	}
	results := make([]error, len(requests))
	committing, err := s.attempt(requests, results)
	switch {
	case err == nil:
		for i, r := range requests {
			r.result = results[i]
		}
	case committing && lostTrack(err):
		for _, r := range requests {
			r.result = s.failed(r.op, r.id, true, err)
		}
		return afterLostCommit(s.describe(err))
	case len(requests) == 1:
		requests[0].result = s.failed(requests[0].op, requests[0].id, committing, err)
	default:
		s.log.Warn("a batch failed; its requests run singly", "requests", len(requests), "error", s.describe(err))
		for i, r := range requests {
			if err := s.commit([]*request{r}); err != nil {
				for _, r := range requests[i+1:] {
					r.result = s.failed(r.op, r.id, false, err)
				}
				return err
			}
		}
	}
	return nil
}

// lostTrack reports whether a COMMIT's error leaves open what the log holds.
func lostTrack(err error) bool {
	code := resultCode(err)
	return code != lib.SQLITE_FULL && code != lib.SQLITE_BUSY
}

// afterLostCommit is why a store stops.
func afterLostCommit(err error) error {
	return fmt.Errorf("the last commit met %w; restart to recover the file", err)
}

// attempt runs the requests in the transaction that has begun, and ends it. It reports whether the error came from COMMIT.
func (s *Store) attempt(requests []*request, results []error) (committing bool, err error) {
	b := &batch{store: s, sessions: make(map[fence.ID]*session)}
	err = b.load()
	for i, r := range requests {
		if err != nil {
			break
		}
		results[i] = r.do(b)
		err = b.err
	}
	if err == nil {
		err = b.save()
	}
	if err != nil {
		s.rollback()
		return false, err
	}
	_, err = s.stmts.commit.Exec()
	if err != nil {
		s.rollback()
		return true, err
	}
	return false, nil
}

// rollback ends the transaction after an error. It fails where SQLite has rolled back by itself, which is as good.
func (s *Store) rollback() { _, _ = s.conn.ExecContext(context.Background(), "ROLLBACK") }

// begin takes SQLite's own writer lock. Programs that do not take turns may hold it: busy means begin again.
func (s *Store) begin() error {
	deadline := time.Now().Add(retryFor)
	for {
		_, err := s.stmts.begin.Exec()
		code := resultCode(err)
		if err == nil || code != lib.SQLITE_BUSY && code != lib.SQLITE_LOCKED || time.Now().After(deadline) {
			return err
		}
		pauseBeforeRetry()
	}
}

// Pauses between attempts to begin beside a program that does not take turns.
const (
	retryLeast = 50 * time.Microsecond
	retryMost  = 500 * time.Microsecond
	retryFor   = 5 * time.Second
)

func pauseBeforeRetry() { time.Sleep(retryLeast + rand.N(retryMost-retryLeast)) }

// load reads the authority's row and the clock, in that order and both under the writer lock.
func (b *batch) load() error {
	a := &b.auth
	err := b.store.stmts.authority.QueryRow().Scan(&a.origin, &a.issued, &a.incarnation, &a.bootID, &a.anchor, &a.mark, &a.ahead)
	if err != nil {
		return err
	}
	if a.bootID != b.store.bootID {
		return b.store.otherBoot()
	}
	kernel := int64(b.store.kernel())
	b.now = a.anchor + kernel
	if b.now < a.mark {
		// Another clock under the same boot id: a virtual machine that was resumed or cloned.
		a.anchor, b.now = a.mark-kernel, a.mark
		b.jump()
	}
	return nil
}

// jump raises the counter above everything that another branch of this file's history can have issued: it issues fewer
// than 1,024 tokens a millisecond.
func (b *batch) jump() {
	b.auth.issued = max(b.auth.issued+1, (b.now-b.auth.origin)/int64(time.Millisecond)<<10)
	b.auth.dirty = true
}

// token draws the next token. The first grant of another incarnation than the last jumps first.
func (b *batch) token() int64 {
	a := &b.auth
	if !bytes.Equal(a.incarnation, b.store.current[:]) {
		b.jump()
		a.incarnation = b.store.current[:]
	}
	a.issued++
	a.dirty = true
	return a.issued
}

// save writes each session and the authority's row once. A batch that changed nothing writes nothing.
func (b *batch) save() error {
	wrote := b.wrote || b.auth.dirty
	for _, s := range b.sessions {
		if !s.dirty {
			continue
		}
		wrote = true
		if err := b.saveSession(s); err != nil {
			return err
		}
	}
	if !wrote {
		return nil
	}
	a := &b.auth
	return affected(b.store.stmts.saveAuthority.Exec(a.issued, a.incarnation, a.anchor, b.now, a.bootID))
}

func (b *batch) saveSession(s *session) error {
	st := b.store.stmts
	if s.recent == nil {
		s.recent = []byte{} // an empty column, not NULL
	}
	if s.isNew {
		_, err := st.insertSession.Exec(s.id[:], s.since, s.owner, s.ttl, s.expiry, s.closedBelow[:], s.recent, s.endedUpTo[:], int(s.ended), s.endedAt)
		return err
	}
	return affected(st.saveSession.Exec(s.expiry, s.closedBelow[:], s.recent, s.endedUpTo[:], int(s.ended), s.endedAt, s.id[:]))
}

// affected turns a write that moved no row into an error: nothing is ever silently not written.
func affected(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n != 1 {
		return fmt.Errorf("a write moved %d rows, not one", n)
	}
	return err
}

// fail records the SQL error that ends the batch and returns it.
func (b *batch) fail(err error) error {
	if b.err == nil {
		b.err = err
	}
	return err
}

// session reads a session's row once. The error is SQL's.
func (b *batch) session(id fence.ID) (*session, error) {
	if s, ok := b.sessions[id]; ok {
		return s, nil
	}
	s := &session{id: id}
	var below, endedUpTo []byte
	var ended int
	err := b.store.stmts.session.QueryRow(id[:]).Scan(&s.since, &s.owner, &s.ttl, &s.expiry, &below, &s.recent, &endedUpTo, &ended, &s.endedAt)
	switch {
	case err == sql.ErrNoRows:
	case err != nil:
		return nil, b.fail(err)
	default:
		s.found = true
		s.ended = lease.End(ended)
		copy(s.closedBelow[:], below)
		copy(s.endedUpTo[:], endedUpTo)
	}
	b.sessions[id] = s
	return s, nil
}

// live returns the session if it is live, and writes the verdict when it finds it expired.
func (b *batch) live(id fence.ID) (*session, error) {
	s, err := b.session(id)
	if err != nil {
		return nil, err
	}
	if s.found && s.ended == 0 && b.now >= s.expiry {
		s.end(lease.EndExpired, s.expiry)
	}
	switch {
	case !s.found:
		return nil, &lease.EndedError{What: "session", ID: id, How: lease.EndForgotten}
	case s.ended != 0:
		return nil, &lease.EndedError{What: "session", ID: id, How: s.ended}
	}
	return s, nil
}

func (s *session) end(how lease.End, at int64) {
	s.ended, s.endedAt, s.dirty = how, at, true
}

func (s *session) remaining(now int64) time.Duration { return time.Duration(s.expiry - now) }

// close raises what the client has closed, and forgets the recent ids below it.
func (s *session) close(below fence.ID) {
	if !s.closedBelow.Less(below) {
		return
	}
	s.closedBelow, s.dirty = below, true
	var kept []byte
	for id := range slices.Chunk(s.recent, 16) {
		if !asID(id).Less(below) {
			kept = append(kept, id...)
		}
	}
	s.recent = kept
}

// maxRecent bounds the ids that a session row remembers, 16 bytes each. Beyond it the oldest are dropped: reuse of an id with
// other names is then noticed only by the names themselves.
const maxRecent = 1024

func (s *session) remember(id fence.ID) {
	s.recent = append(s.recent, id[:]...)
	if len(s.recent) > maxRecent*16 {
		s.recent = s.recent[16:]
	}
	s.dirty = true
}

func (s *session) used(id fence.ID) bool {
	for known := range slices.Chunk(s.recent, 16) {
		if asID(known) == id {
			return true
		}
	}
	return false
}
