package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// Open is part of [lease.Store].
func (s *Store) Open(ctx context.Context, req lease.OpenRequest) (time.Duration, error) {
	if err := req.Check(s.Guarantees()); err != nil {
		return 0, err
	}
	var code, how *int16
	var left pgtype.Interval
	var what *string
	err := s.one(ctx, "open", req.ID, []any{&code, &how, &left, &what},
		`SELECT code, how, remaining, what FROM tenure.session_open($1, $2, $3)`, uuid(req.ID), req.Owner, interval(req.TTL))
	if err != nil {
		return 0, err
	}
	switch codeOf(code) {
	case codeDone:
		return duration(left), nil
	case codeMismatch:
		return 0, &lease.MismatchError{What: text(what), ID: req.ID}
	}
	return 0, &lease.EndedError{What: "session", ID: req.ID, How: endOf(how)}
}

// Renew is part of [lease.Store].
func (s *Store) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	if err := req.Check(); err != nil {
		return lease.Renewal{}, err
	}
	own := s.session(req.Session)
	for _, a := range req.Release {
		// What became of it is no matter: after this it is over. Only a failure to say so counts.
		_, err := s.release(ctx, lease.ReleaseRequest{Session: req.Session, ID: a.ID, Names: a.Names, ClosedBelow: req.ClosedBelow}, true)
		if errors.Is(err, lease.ErrUnknown) || errors.Is(err, lease.ErrUnavailable) {
			return lease.Renewal{}, err
		}
	}
	asOf := own.unconfirmed()
	var r renewal
	if err := s.renewals.renew(ctx, s, req, &r); err != nil {
		return lease.Renewal{}, err
	}
	if codeOf(r.code) != codeDone {
		s.forget(req.Session)
		return lease.Renewal{}, &lease.EndedError{What: "session", ID: req.Session, How: endOf(r.how)}
	}
	own.closeBelow(req.ClosedBelow)
	if repeat := own.confirm(asOf, s.seen(r.unbroken.Bytes)); repeat > 0 {
		s.log.Warn("the server lost what it had not flushed; releases are repeated", "session", req.Session, "releases", repeat)
	}
	reply := lease.Renewal{Remaining: duration(r.remaining)}
	for i, id := range r.revoked {
		reply.Revoked = append(reply.Revoked, lease.RevokedAcquisition{ID: id.Bytes, Reason: r.reasons[i]})
	}
	s.repeat(ctx, req, own) // now, so that what was released stays released
	return reply, nil
}

// repeat releases again, durably, what the server lost: in batches, and then one by one what no batch settled, because it is locked or is
// over. It takes a second at most, after the renewal, so that it never costs the session; the rest waits for the next renewal.
func (s *Store) repeat(ctx context.Context, req lease.RenewRequest, own *session) {
	if s.enter("renew") != nil {
		return
	}
	defer s.leave()
	ctx, cancel := context.WithTimeout(ctx, repeatBound)
	defer cancel()
	for ctx.Err() == nil {
		if lost := own.take(&own.lost, maxBatch); len(lost) > 0 {
			own.giveBack(&own.stuck, s.repeatMany(ctx, req.Session, lost))
		} else if stuck := own.take(&own.stuck, 1); len(stuck) > 0 {
			again := lease.ReleaseRequest{Session: req.Session, ID: stuck[0].id, Names: []string{stuck[0].name}, ClosedBelow: req.ClosedBelow}
			if _, err := s.releaseSingly(ctx, again, again.Names); errors.Is(err, lease.ErrUnknown) || errors.Is(err, lease.ErrUnavailable) {
				own.giveBack(&own.stuck, stuck)
				return
			}
		} else {
			return
		}
	}
}

// repeatMany returns those that are held all the same: a batch leaves what is locked.
func (s *Store) repeatMany(ctx context.Context, session fence.ID, lost []released) (left []released) {
	batch := make([]*call, len(lost))
	ids, names := make([]pgtype.UUID, len(lost)), make([]string, len(lost))
	for i, r := range lost {
		batch[i] = &call{op: "release", id: r.id, name: r.name, sync: true}
		ids[i], names[i] = uuid(r.id), r.name
	}
	s.releaseMany(ctx, session, batch)
	rows, err := s.pool.Query(ctx, `SELECT u.o FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY u (id, name, o), tenure.lease_of(u.name) l
		WHERE l.held AND l.acquisition = u.id AND l.session = $3`, ids, names, uuid(session))
	if err != nil {
		return lost
	}
	held, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return lost
	}
	for _, o := range held {
		left = append(left, lost[o-1])
	}
	return left
}

type renewal struct {
	code, how *int16
	remaining pgtype.Interval
	revoked   []pgtype.UUID
	reasons   []string
	unbroken  pgtype.UUID
}

// reserved is the connection for renewals: they do not wait for the pool.
type reserved struct {
	gate chan struct{} // held while the connection is in use
	conn *pgx.Conn
}

// renew runs one renewal on the reserved connection, which it makes anew after an error.
func (r *reserved) renew(ctx context.Context, s *Store, req lease.RenewRequest, out *renewal) error {
	const op = "renew"
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.leave()
	select {
	case r.gate <- struct{}{}:
		defer func() { <-r.gate }()
	case <-ctx.Done():
		return &lease.UnavailableError{Op: op, Err: context.Cause(ctx)}
	}
	if r.conn == nil || r.conn.IsClosed() {
		conn, err := s.connect(ctx)
		if err != nil {
			return &lease.UnavailableError{Op: op, Err: fmt.Errorf("making the connection for renewals: %w", err)}
		}
		r.conn = conn
	}
	delete(r.conn.PgConn().CustomData(), unreplicated)
	err := r.conn.QueryRow(ctx, `SELECT code, how, remaining, revoked, reasons, unbroken FROM tenure.session_renew($1, $2)`, uuid(req.Session), uuid(req.ClosedBelow)).
		Scan(&out.code, &out.how, &out.remaining, &out.revoked, &out.reasons, &out.unbroken)
	if err == nil {
		err = replicated(r.conn)
	}
	return s.failed(op, req.Session, true, err)
}

// connect makes the connection for renewals: out of the pool while it has one to spare, because the server may have no room for another;
// else beside it, by the same settings and hooks, because whoever uses up the pool must not stop renewals.
func (s *Store) connect(ctx context.Context) (*pgx.Conn, error) {
	if stat := s.pool.Stat(); stat.AcquiredConns()+stat.ConstructingConns() < stat.MaxConns() {
		c, err := s.pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return c.Hijack(), nil // the pool makes another
	}
	o := s.pool.Config()
	if o.BeforeConnect != nil {
		if err := o.BeforeConnect(ctx, o.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, o.ConnConfig)
	if err != nil || o.AfterConnect == nil {
		return conn, err
	}
	if err := o.AfterConnect(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	return conn, nil
}

func (r *reserved) close(ctx context.Context) error {
	r.gate <- struct{}{}
	defer func() { <-r.gate }()
	if r.conn == nil || r.conn.IsClosed() {
		return nil
	}
	return r.conn.Close(ctx)
}

// Close is part of [lease.Store]. The session's end is committed first; then the leases that this store knows of it are marked
// as over, in a transaction of its own. Those that it does not know are free all the same.
func (s *Store) Close(ctx context.Context, id fence.ID) error {
	if id.IsZero() {
		return &lease.InvalidError{Field: "session", Problem: "no id"}
	}
	own := s.session(id)
	own.stop()
	var code, how *int16
	err := s.again("close", func() (bool, error) {
		err := s.one(ctx, "close", id, []any{&code, &how}, `SELECT code, how FROM tenure.session_close($1)`, uuid(id))
		return codeOf(code) == codeAgain, err
	})
	if err != nil {
		own.goOn(s.ctx) // it may be open still
		return err
	}
	if ids, names := own.heldRows(); len(ids) > 0 {
		if _, err := s.pool.Exec(ctx, `SELECT tenure.free_closed($1, $2, $3)`, uuid(id), ids, names); err != nil {
			s.log.Debug("leases of a closed session were not marked; they are free", "session", id, "leases", len(ids), "error", err)
		}
	}
	s.forget(id)
	if codeOf(code) == codeOver {
		return &lease.EndedError{What: "session", ID: id, How: endOf(how)}
	}
	return nil
}

// session is what this store remembers of a session between calls. Nothing is decided by it but what a client's own
// mistake would otherwise hide.
type session struct {
	acquires, releases lane
	slow               chan struct{} // bounds requests that go the long way

	mu       sync.Mutex
	ctx      context.Context // ends what waits, when the session is closed or found to be over
	cancel   context.CancelFunc
	known    map[fence.ID]acquired // the ids that are held, or over and not closed
	over     []fence.ID            // those of known that are over: a ring
	oldest   int                   // where the ring is written next, once it is full
	async    []released            // releases that no durable commit is known to follow
	passed   int                   // how many were in it and are not any more
	lost     []released            // releases to be repeated
	stuck    []released            // those of them that no batch settled
	unbroken fence.ID              // the mark of the server's uninterrupted life, as of the last renewal
}

// acquired is what is known of an id.
type acquired struct {
	names []string   // asked for under it
	place pgtype.TID // where its row was when a batch granted it: a hint, which may be wrong by now. Invalid: not known
}

type released struct {
	id   fence.ID
	name string
}

const (
	maxSessions = 10000  // remembered, unless more are held or at work
	maxOver     = 1024   // ids that are over and that a session remembers with their names
	maxAsync    = 100000 // releases between two renewals that are not durable by themselves

	repeatBound = time.Second // of one renewal's repeating of lost releases
)

func (s *Store) session(id fence.ID) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.sessions[id]
	if own == nil {
		if len(s.sessions) >= maxSessions {
			s.evictLocked()
		}
		own = &session{slow: make(chan struct{}, maxSlow), known: map[fence.ID]acquired{}, unbroken: s.unbroken}
		own.goOn(s.ctx)
		s.sessions[id] = own
	}
	return own
}

// evictLocked drops a session of which nothing is held nor under way, if one is soon found: most likely only releases came for it.
func (s *Store) evictLocked() {
	looked := 0
	for id, own := range s.sessions {
		if own.idle() {
			own.stop()
			delete(s.sessions, id)
			return
		}
		if looked++; looked == 100 {
			return
		}
	}
}

// idle reports whether nothing would be lost by forgetting the session.
func (own *session) idle() bool {
	if own.acquires.atWork() || own.releases.atWork() {
		return false
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	return len(own.known) <= len(own.over) && len(own.async)+len(own.lost)+len(own.stuck) == 0
}

// mark is that of the server's uninterrupted life, as of the last renewal.
func (own *session) mark() fence.ID {
	own.mu.Lock()
	defer own.mu.Unlock()
	return own.unbroken
}

// seen notes the mark of the server's uninterrupted life, as of now.
func (s *Store) seen(unbroken fence.ID) fence.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unbroken = unbroken
	return unbroken
}

// forget drops what is remembered of a session that is over.
func (s *Store) forget(id fence.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := s.sessions[id]; own != nil {
		own.stop()
		delete(s.sessions, id)
	}
}

// life ends with the session, as far as this store knows.
func (own *session) life() context.Context {
	own.mu.Lock()
	defer own.mu.Unlock()
	return own.ctx
}

func (own *session) stop() {
	own.mu.Lock()
	defer own.mu.Unlock()
	own.cancel()
}

// goOn begins a life, also after a stop that came to nothing.
func (own *session) goOn(ctx context.Context) {
	own.mu.Lock()
	defer own.mu.Unlock()
	own.ctx, own.cancel = context.WithCancel(ctx)
}

// granted remembers what an id took.
func (own *session) granted(id fence.ID, a acquired) {
	own.mu.Lock()
	defer own.mu.Unlock()
	own.known[id] = a
}

// of returns what is known of an id; its names are nil if that is nothing.
func (own *session) of(id fence.ID) acquired {
	own.mu.Lock()
	defer own.mu.Unlock()
	return own.known[id]
}

// isHeld reports whether an id is known, and not known to be over.
func (own *session) isHeld(id fence.ID) bool {
	own.mu.Lock()
	defer own.mu.Unlock()
	return own.known[id].names != nil && !slices.Contains(own.over, id)
}

// ended notes that an id is over. The names stay known for a while: a request under it with others is a mistake to be told.
func (own *session) ended(id fence.ID, names []string) {
	own.mu.Lock()
	defer own.mu.Unlock()
	own.known[id] = acquired{names: names}
	if len(own.over) < maxOver {
		own.over = append(own.over, id)
	} else {
		delete(own.known, own.over[own.oldest])
		own.over[own.oldest] = id
		own.oldest = (own.oldest + 1) % maxOver
	}
}

// releasedAsync notes a release that no durable commit is known to follow. It was sent under a mark; if that is not the server's any more, it
// may be lost already.
func (own *session) releasedAsync(id fence.ID, name string, mark fence.ID) {
	own.mu.Lock()
	defer own.mu.Unlock()
	if mark == own.unbroken {
		own.async = append(own.async, released{id, name})
	} else {
		own.lost = append(own.lost, released{id, name})
	}
}

// mayReleaseAsync reports whether one more release may go without a durable commit of its own.
func (own *session) mayReleaseAsync() bool {
	own.mu.Lock()
	defer own.mu.Unlock()
	return len(own.async) < maxAsync
}

// closeBelow forgets the names of ids that are over and below the bound: nothing is granted under them any more.
func (own *session) closeBelow(bound fence.ID) {
	own.mu.Lock()
	defer own.mu.Unlock()
	kept := own.over[:0]
	for _, id := range own.over {
		if id.Less(bound) {
			delete(own.known, id)
		} else {
			kept = append(kept, id)
		}
	}
	own.over, own.oldest = kept, 0
}

// heldRows is what is held, as far as it is known, one row a name.
func (own *session) heldRows() (ids []pgtype.UUID, names []string) {
	own.mu.Lock()
	defer own.mu.Unlock()
	over := make(map[fence.ID]bool, len(own.over))
	for _, id := range own.over {
		over[id] = true
	}
	for id, of := range own.known {
		for _, name := range of.names {
			if !over[id] {
				ids, names = append(ids, uuid(id)), append(names, name)
			}
		}
	}
	return ids, names
}

func (own *session) unconfirmed() int {
	own.mu.Lock()
	defer own.mu.Unlock()
	return own.passed + len(own.async)
}

// confirm drops the first n asynchronous releases of the session's life after a durable commit that followed them in the same
// uninterrupted life of the server. In another life they may have been lost: then they are to be repeated, and confirm returns how many.
func (own *session) confirm(n int, unbroken fence.ID) int {
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.unbroken != unbroken {
		own.lost = append(own.lost, own.async...)
		n = own.passed + len(own.async)
	}
	own.unbroken = unbroken
	if drop := n - own.passed; drop > 0 { // else another renewal has dropped them
		own.async = append([]released(nil), own.async[drop:]...)
		own.passed = n
	}
	return len(own.lost)
}

// take takes the first n out of a list of the session's.
func (own *session) take(list *[]released, n int) []released {
	own.mu.Lock()
	defer own.mu.Unlock()
	n = min(n, len(*list))
	taken := (*list)[:n:n]
	*list = (*list)[n:]
	return taken
}

func (own *session) giveBack(list *[]released, back []released) {
	own.mu.Lock()
	defer own.mu.Unlock()
	*list = append(*list, back...)
}
