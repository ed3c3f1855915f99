package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// Options are settings of a [Store]. The zero value is usable.
type Options struct {
	// Logger gets what an operator wants to know; nil discards it.
	Logger *slog.Logger
	// SyncRelease makes every release durable before it is told. Without it a plain release may be lost when the server crashes within
	// a second of it (three wal_writer_delay); the session's next renewal then repeats it. It costs about a third of the throughput.
	SyncRelease bool
}

// Store is the authority of one database. Safe for concurrent use.
type Store struct {
	pool    *pgxpool.Pool
	ownPool bool
	log     *slog.Logger
	opts    Options
	id      fence.ID
	ctx     context.Context // ends with Shutdown
	end     context.CancelFunc
	work    sync.WaitGroup // batches on their way

	mu       sync.Mutex
	sessions map[fence.ID]*session
	unbroken fence.ID // the mark of the server's uninterrupted life, as last seen
	down     bool

	renewals reserved
	refused  atomic.Int64 // claims, by Fenced

	operations *Operations
	holds      *Holds
	outbox     *Outbox
}

// New makes a store on pool, which stays the caller's: the store takes a connection for each call, and takes one more out of the pool
// for renewals, which must not queue behind other work. The pool's settings decide how statements are sent: named
// prepared statements on a direct connection (the driver's default); behind PgBouncer in transaction mode set
// default_query_exec_mode=cache_describe or exec. [Configure] before the pool is made lets the store see cancelled waits for standbys.
//
// New returns a [*SchemaError] if the database's schema is missing, older or newer, an error matching [lease.ErrUnavailable] that wraps the
// driver's if it cannot be asked, which matches [ErrSetup] too where the role may not use it, and an error if the pool's connections have another client_encoding than UTF8, by a setting of the role, say.
func New(ctx context.Context, pool *pgxpool.Pool, o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{pool: pool, log: o.Logger, opts: o, sessions: map[fence.ID]*session{}}
	if err := checkVersion(ctx, pool); errors.As(err, new(*SchemaError)) {
		return nil, err
	} else if err != nil {
		return nil, s.failed("open", fence.ID{}, false, fmt.Errorf("reading the version of the schema: %w", err))
	}
	var authority, unbroken pgtype.UUID
	var encoding string
	if err := pool.QueryRow(ctx, `SELECT tenure.authority_id(), tenure.unbroken_id(), current_setting('client_encoding')`).Scan(&authority, &unbroken, &encoding); err != nil {
		return nil, s.failed("open", fence.ID{}, false, fmt.Errorf("reading the authority: %w", err))
	}
	if encoding != "UTF8" { // two processes would hold what is one name to people
		return nil, fmt.Errorf("postgres: the pool's connections have client_encoding %s, so the server takes every name that is not ASCII for another: say client_encoding=UTF8 in the connection string, or use Configure", encoding)
	}
	s.id, s.unbroken = authority.Bytes, unbroken.Bytes
	s.ctx, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.renewals.gate = make(chan struct{}, 1)
	s.operations = newOperations(s)
	s.holds = newHolds(s)
	s.outbox = newOutbox(s)
	return s, nil
}

// Open makes a store with a pool of its own. url is a connection string as pgxpool reads it.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	Configure(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	s, err := New(ctx, pool, o)
	if err != nil {
		pool.Close()
		return nil, err
	}
	s.ownPool = true
	return s, nil
}

const unreplicated = "tenure_unreplicated"

// Configure prepares a pool's configuration, before the pool is made: its connections note when the wait for a synchronous
// standby was cancelled, which the server tells by a warning alone. The store then answers with [lease.ErrUnknown]. And they
// speak UTF8, as the driver does, whatever client_encoding the role or the database has.
func Configure(c *pgxpool.Config) {
	c.ConnConfig.RuntimeParams["client_encoding"] = "UTF8"
	before := c.ConnConfig.OnNotice
	c.ConnConfig.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		// 01000: cancelled by a user; 57P01: by a shutdown. No other warning of these functions has such a code.
		if n.SeverityUnlocalized == "WARNING" && (n.Code == "01000" || n.Code == "57P01") {
			conn.CustomData()[unreplicated] = true
		}
		if before != nil {
			before(conn, n)
		}
	}
}

// Shutdown gives back what the store holds: it waits for calls on their way, until ctx ends, and closes the connection for
// renewals, and the pool if the store made it. It ends no session. Calls after it return [lease.ErrUnavailable].
func (s *Store) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	s.outbox.listener.end()
	done := make(chan struct{})
	go func() {
		s.work.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.end()
	<-done
	s.outbox.listener.close(ctx)
	err = errors.Join(err, s.renewals.close(context.WithoutCancel(ctx)))
	if s.ownPool {
		s.pool.Close()
	}
	return err
}

// Authority is the id in the claims of this store.
func (s *Store) Authority() fence.ID { return s.id }

// Guarantees is part of [lease.Store].
func (s *Store) Guarantees() lease.Guarantees {
	return lease.Guarantees{
		Store:         "postgres",
		DurableGrants: true,
		TokensSurvive: true,
		PreciseExpiry: true,
		CoLocated:     true,
		Shared:        true,
		MaxNames:      lease.MaxNames,
		MinTTL:        lease.MinTTL,
		MaxTTL:        lease.MaxTTL,
		Grain:         time.Microsecond,
	}
}

// enter counts a call as on its way, unless the store is shut down.
func (s *Store) enter(op string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return &lease.UnavailableError{Op: op, Err: errShutDown}
	}
	s.work.Add(1)
	return nil
}

func (s *Store) leave() { s.work.Done() }

// conn takes a connection of the pool for one call. The caller releases it.
func (s *Store) conn(ctx context.Context, op string) (*pgxpool.Conn, error) {
	c, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, &lease.UnavailableError{Op: op, Err: fmt.Errorf("taking a connection: %w", err)}
	}
	delete(c.Conn().PgConn().CustomData(), unreplicated)
	return c, nil
}

// replicated is an error if the transaction that just ended may be on this server alone.
func replicated(c *pgx.Conn) error {
	if c.PgConn().CustomData()[unreplicated] == nil {
		return nil
	}
	return errReplicated
}

// one runs a statement that returns one row, in a transaction of its own. What it read counts only after the server's
// final word, which comes after the commit.
func (s *Store) one(ctx context.Context, op string, id fence.ID, dest []any, sql string, args ...any) error {
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.leave()
	return s.failed(op, id, true, s.row(ctx, op, dest, sql, args...))
}

// row is one without the translation of the driver's errors.
func (s *Store) row(ctx context.Context, op string, dest []any, sql string, args ...any) error {
	c, err := s.conn(ctx, op)
	if err != nil {
		return err
	}
	defer c.Release()
	if err := c.QueryRow(ctx, sql, args...).Scan(dest...); err != nil {
		return err
	}
	return replicated(c.Conn())
}

// again runs a call that may answer "begin again", a bounded number of times.
func (s *Store) again(op string, call func() (again bool, err error)) error {
	for range maxAttempts {
		again, err := call()
		if !again || err != nil {
			return err
		}
	}
	return &lease.UnavailableError{Op: op, Err: errTooMany}
}

const (
	maxAttempts = 20    // of one request whose rows change under it
	maxQueue    = 65536 // requests of one session that wait for a batch
	maxBatch    = 512   // requests in one batch
	looks       = 2     // at locked rows, before they are waited for
	maxSlow     = 4     // requests of one session that go the long way at once
	maxWait     = time.Second
	batchBound  = 30 * time.Second // of a batch, whose callers may all have gone
)
