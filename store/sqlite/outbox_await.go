package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

// awaitEvery is how often a file is looked at for what others have committed, by whomever it was: a transaction of the application's says nothing to this process.
const awaitEvery = 20 * time.Millisecond

// mailbox is what those who wait for messages share.
type mailbox struct {
	mu     sync.Mutex
	db     *sql.DB // one connection, because SQLite tells it alone what others have committed; nil until it is needed
	conn   *sql.Conn
	ended  bool
	data   int64         // what that connection saw last
	looked time.Time     // when
	turn   uint64        // rises when something was committed
	seen   uint64        // turn at the latest claim
	at     time.Duration // when that was, on the kernel's clock
	bell   chan struct{} // closed when turn has risen by a call of this process; nil: nobody waits
}

// wake says that a call of this process may have made something claimable.
func (m *mailbox) wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rise()
}

func (m *mailbox) rise() {
	m.turn++
	if m.bell != nil {
		close(m.bell)
		m.bell = nil
	}
}

// claimed says that a claim begins: what was committed before is known to it.
func (m *mailbox) claimed(at time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen, m.at = m.turn, at
}

func (m *mailbox) last() (turn uint64, at time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen, m.at
}

// look returns the turn, and what is closed when it rises by a call of this process.
func (m *mailbox) look(ctx context.Context, s *Store) (uint64, <-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bell == nil {
		m.bell = make(chan struct{})
	}
	bell := m.bell
	if m.conn != nil && time.Since(m.looked) < awaitEvery/2 {
		return m.turn, bell, nil
	}
	if m.ended {
		return 0, nil, &FileError{Path: s.path, Kind: ErrShutDown}
	}
	if m.conn == nil {
		var err error
		if m.db, err = s.openPool(dsn(s.path, readBusy, true)); err != nil {
			return 0, nil, err
		}
		if m.conn, err = m.db.Conn(ctx); err != nil {
			return 0, nil, errors.Join(err, m.db.Close())
		}
	}
	var data int64
	if err := m.conn.QueryRowContext(ctx, `PRAGMA data_version`).Scan(&data); err != nil {
		if ctx.Err() == nil { // another connection, the next time
			err = errors.Join(err, m.conn.Close(), m.db.Close())
			m.conn = nil
		}
		return 0, nil, err
	}
	if m.looked = time.Now(); data != m.data {
		m.data = data
		m.rise()
	}
	return m.turn, bell, nil
}

// close ends the connection, if there is one.
func (m *mailbox) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	if m.conn == nil {
		return nil
	}
	err := errors.Join(m.conn.Close(), m.db.Close())
	m.conn = nil
	return err
}

// Await implements [outbox.Waker]. It hears of what calls of this store have changed at once, and looks for what others have committed fifty times a second, which costs
// some microseconds each. It says true only where there is something to claim, of any topic.
func (o *Outbox) Await(ctx context.Context, atMost time.Duration) (bool, error) {
	if err := outbox.CheckAwait(atMost); err != nil {
		return false, err
	}
	m := &o.store.mail
	end := time.NewTimer(atMost)
	defer end.Stop()
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	seen, claimed := m.last()
	due := time.Duration(0)
	for first := true; ; first = false {
		turn, bell, err := m.look(ctx, o.store)
		if ctx.Err() != nil {
			return false, nil
		}
		if err != nil {
			return false, &outbox.UnavailableError{Op: "await", Err: o.store.describe(err)}
		}
		if turn != seen || first || due > 0 && o.store.kernel() >= due {
			found, next, err := o.claimable(ctx)
			if ctx.Err() != nil {
				return false, nil
			}
			if err != nil {
				return false, err
			}
			if found && (turn != seen || !first || next > claimed) { // else the latest claim has left it: it is of a topic that was not asked for
				return true, nil
			}
			if seen, due = turn, next; found {
				due = 0
			}
		}
		select {
		case <-bell:
		case <-tick.C:
		case <-end.C:
			return false, nil
		case <-ctx.Done():
			return false, nil
		}
	}
}

// claimable reports whether a claim would find something, and since when on the kernel's clock, or else when it may; 0: that is not known.
func (o *Outbox) claimable(ctx context.Context) (found bool, due time.Duration, err error) {
	req := outbox.ClaimRequest{Claim: fence.ID{1}, Limit: 1, Bytes: 1, TTL: outbox.MinTTL, MaxAttempts: outbox.MaxAttempts}
	err = o.read(ctx, "await", func(b *mailBatch) error {
		c, err := b.choose(&req)
		if err != nil {
			return err
		}
		at := c.next
		if all := slices.Concat(c.taken, c.buried); len(all) > 0 {
			found, at = true, all[0].at
		}
		if at > 0 {
			due = o.store.kernel() + time.Duration(at-b.now)
		}
		return nil
	})
	return found, due, err
}
