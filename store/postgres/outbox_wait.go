package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/outbox"
)

const (
	waiterLock    = 8031162945071838576 // as in tenure.outbox_wake
	listenBound   = 5 * time.Second     // for each statement on the connection for notifications, and before it is made anew after an error
	listenExpires = 30 * time.Second    // after so long without a word the server ends it, and then nobody is notified for its sake
	listenProbe   = 10 * time.Second    // so often it is asked whether it is there
)

// listener is the connection for notifications of a store, on which waiters wait one after the other; those that come meanwhile share what it hears.
type listener struct {
	store *Store
	ctx   context.Context // ends when the store is being shut down
	end   context.CancelFunc
	bound time.Duration // for each statement, and before a connection is made anew after an error
	probe time.Duration // so often it is asked whether it is there
	gate  chan struct{} // held while the connection is in use
	conn  *pgx.Conn
	retry time.Time // no connection is tried before

	left atomic.Int64 // turns up to here were drawn before the latest claim looked: what it has left is told to nobody

	mu     sync.Mutex
	pooled bool
	shared []chan struct{}
}

// Await implements [outbox.Waker]: by LISTEN, on a connection of its own beside the pool. Only while somebody waits are appends accompanied by a notification. The connection is asked every few seconds whether it is there; where it is not, Await
// returns at its time, and makes it anew. Behind a pooler no notification arrives: then Await returns an error, at once and every time, and the log says so once.
func (o *Outbox) Await(ctx context.Context, atMost time.Duration) (bool, error) {
	if err := outbox.CheckAwait(atMost); err != nil {
		return false, err
	}
	if err := o.store.enter("await"); err != nil {
		return false, o.store.outboxFailed("await", [16]byte{}, false, err)
	}
	defer o.store.leave()
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	stop := context.AfterFunc(o.listener.ctx, cancel) // nobody is waited for who waits
	defer stop()
	return o.listener.await(ctx)
}

func (l *listener) await(ctx context.Context) (bool, error) {
	if l.polls() {
		return false, &outbox.UnavailableError{Op: "await", Err: errPooled}
	}
	heard := l.join()
	defer l.part(heard)
	select {
	case l.gate <- struct{}{}:
		defer func() { <-l.gate }()
	case <-heard:
		return true, nil
	case <-ctx.Done():
		return false, nil
	}
	woken, err := l.listen(ctx)
	switch {
	case woken:
		l.wake()
		return true, nil
	case ctx.Err() != nil:
		return false, nil
	case err != nil:
		return false, &outbox.UnavailableError{Op: "await", Err: err}
	}
	return false, nil
}

func (l *listener) polls() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pooled
}

func (l *listener) join() chan struct{} {
	c := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shared = append(l.shared, c)
	return c
}

func (l *listener) part(c chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.shared {
		if l.shared[i] == c {
			l.shared = append(l.shared[:i:i], l.shared[i+1:]...)
			return
		}
	}
}

// wake tells all who wait.
func (l *listener) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.shared {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// listen waits on the connection. Who has it holds the gate.
func (l *listener) listen(ctx context.Context) (bool, error) {
	if err := l.open(ctx); err != nil {
		return false, err
	}
	ready, err := l.enroll(ctx)
	if err != nil || ready {
		l.leave(ctx, err)
		return ready, err
	}
	for ctx.Err() == nil {
		probe, cancel := context.WithTimeout(ctx, l.probe)
		_, err = l.conn.WaitForNotification(probe)
		cancel()
		switch {
		case err == nil:
			l.leave(ctx, nil)
			return true, nil
		case ctx.Err() != nil && !l.conn.IsClosed():
			l.leave(ctx, nil)
			return false, nil
		case probe.Err() != nil && !l.conn.IsClosed(): // is it there?
			if err = l.exec(ctx, `SELECT 1`); err == nil {
				continue
			}
		}
		l.leave(ctx, err)
		return false, err
	}
	l.leave(ctx, nil)
	return false, nil
}

// open makes the connection where there is none.
func (l *listener) open(ctx context.Context) error {
	if l.conn != nil && !l.conn.IsClosed() {
		return nil
	}
	if wait := time.Until(l.retry); wait > 0 { // as the caller would poll
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	l.retry = time.Now().Add(l.bound)
	bound, cancel := context.WithTimeout(ctx, l.bound)
	defer cancel()
	conn, err := pgx.ConnectConfig(bound, l.store.pool.Config().ConnConfig)
	if err != nil {
		return fmt.Errorf("making the connection for notifications: %w", err)
	}
	l.conn = conn
	pooled, err := l.setUp(ctx)
	if err != nil || pooled {
		l.drop(ctx)
	}
	if pooled {
		l.mu.Lock()
		l.pooled = true
		l.mu.Unlock()
		l.store.log.Warn("this outbox polls: its connections go through a pooler, which passes no notifications on")
		return errPooled
	}
	return err
}

// setUp listens. Behind a pooler it does nothing: what it set would stay with a connection that others use. A pooler tells its clients another process than the server's.
func (l *listener) setUp(ctx context.Context) (pooled bool, _ error) {
	bound, cancel := context.WithTimeout(ctx, l.bound)
	defer cancel()
	var pid uint32
	if err := l.conn.QueryRow(bound, `SELECT pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return false, err
	}
	if pid != l.conn.PgConn().PID() {
		return true, nil
	}
	if err := l.exec(ctx, fmt.Sprintf(`SET idle_session_timeout = %d`, listenExpires.Milliseconds())); err != nil && !refusedByServer(err) { // PostgreSQL 13 has none
		return false, err
	}
	return false, l.exec(ctx, `LISTEN tenure_outbox`)
}

func (l *listener) exec(ctx context.Context, text string) error {
	bound, cancel := context.WithTimeout(ctx, l.bound)
	defer cancel()
	_, err := l.conn.Exec(bound, text, pgx.QueryExecModeSimpleProtocol)
	return err
}

// enroll makes who appends notify, and reports whether something is there already.
func (l *listener) enroll(ctx context.Context) (ready bool, err error) {
	bound, cancel := context.WithTimeout(ctx, l.bound)
	defer cancel()
	if err := l.exec(ctx, fmt.Sprintf(`SELECT pg_advisory_lock_shared(%d)`, waiterLock)); err != nil {
		return false, err
	}
	err = l.conn.QueryRow(bound, `SELECT tenure.outbox_ready($1::bigint)`, pgx.QueryExecModeSimpleProtocol, l.left.Load()).Scan(&ready)
	return ready, err
}

// leave makes who appends stop notifying. A connection with an error goes.
func (l *listener) leave(ctx context.Context, err error) {
	ctx = context.WithoutCancel(ctx)
	if err == nil {
		err = l.exec(ctx, `SELECT pg_advisory_unlock_all()`)
	}
	if err != nil {
		l.drop(ctx)
	}
}

func (l *listener) drop(ctx context.Context) {
	if l.conn == nil {
		return
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := l.conn.Close(bound); err != nil {
		l.store.log.Debug("closing the connection for notifications", "error", err)
	}
	l.conn = nil
}

// close ends the connection. Nobody waits any more.
func (l *listener) close(ctx context.Context) { l.drop(ctx) }
