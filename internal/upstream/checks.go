package upstream

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/fencehttp"
	"github.com/tenure-go/tenure/store/postgres"
	"github.com/tenure-go/tenure/store/sqlite"
)

// Place is a store: one of the two is given.
type Place struct {
	Path string // of a SQLite database, absolute
	URL  string // of a PostgreSQL database, in which the schema is installed
}

// CheckOptions say how a store is asked.
type CheckOptions struct {
	Place
	// HighWater keeps marks in the store, durable before a request is let in, instead of asking it for the lease.
	HighWater bool
	// AtOnce is how many requests are checked at a time on PostgreSQL, each on a connection of its own; a strict one
	// keeps it while the service is at work. A pool_max_conns in the URL is kept, less two. It must be positive.
	AtOnce int
	Log    *slog.Logger // nil: nobody is told
}

// Opened is a check with what it stands on.
type Opened struct {
	fencehttp.Check
	close func(ctx context.Context) error
}

// Close gives back what the check stands on.
func (o *Opened) Close(ctx context.Context) error { return o.close(ctx) }

// checkBound is how long a store is waited for, before a request is let in.
const checkBound = 5 * time.Second

// OpenCheck opens a store and returns the check that asks it.
//
// Strict on PostgreSQL keeps the holder's successors out while the service is at work: the request is served inside a fenced
// transaction. That lasts no longer than the lease had left; a request that takes longer is cut off, and its client told so.
// Strict on SQLite would stop every writer of the file for that long: there the claim is verified, and then the request is served.
func OpenCheck(ctx context.Context, o CheckOptions) (*Opened, error) {
	if o.AtOnce < 1 {
		return nil, fmt.Errorf("%w: want at least one request at a time", ErrOption)
	}
	var opened *Opened
	var err error
	if o.URL != "" {
		opened, err = openPostgres(ctx, o)
	} else {
		opened, err = openSQLite(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	opened.Check = bounded{opened.Check}
	return opened, nil
}

// bounded ends a check that does not answer.
type bounded struct{ check fencehttp.Check }

// Within is part of [fencehttp.Check].
func (b bounded) Within(ctx context.Context, resource string, claim fence.Claim, serve func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(checkBound, func() { cancel(errSilent) })
	defer timer.Stop()
	return b.check.Within(ctx, resource, claim, func(ctx context.Context) error {
		if !timer.Stop() {
			return errSilent
		}
		return serve(ctx)
	})
}

func openSQLite(ctx context.Context, o CheckOptions) (*Opened, error) {
	store, err := sqlite.Open(ctx, sqlite.Config{Path: o.Path, Logger: o.Log})
	if err != nil {
		return nil, err
	}
	if !o.HighWater {
		verify := func(ctx context.Context, claim fence.Claim) error {
			return store.Fenced(ctx, claim, func(context.Context, *sqlite.Tx) error { return nil })
		}
		return &Opened{Check: fencehttp.Strict(verify), close: store.Shutdown}, nil
	}
	q := url.Values{"_txlock": {"immediate"}}
	q.Add("_pragma", "busy_timeout("+strconv.FormatInt(time.Second.Milliseconds(), 10)+")")
	q.Add("_pragma", "synchronous(FULL)")
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: filepath.ToSlash(o.Path), RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, errors.Join(err, store.Shutdown(ctx))
	}
	db.SetMaxOpenConns(1)
	check := func(ctx context.Context, resource string, claim fence.Claim) error {
		return enterSQLite(ctx, db, resource, claim)
	}
	return &Opened{Check: fencehttp.CheckFunc(check), close: func(ctx context.Context) error {
		return errors.Join(db.Close(), store.Shutdown(ctx))
	}}, nil
}

// enterSQLite writes the mark in a transaction, which begins again while others write.
func enterSQLite(ctx context.Context, db *sql.DB, resource string, claim fence.Claim) error {
	for {
		err := enterOnce(ctx, db, resource, claim)
		var coded interface{ Code() int }
		if !errors.As(err, &coded) || coded.Code()&0xff != 5 && coded.Code()&0xff != 6 { // SQLITE_BUSY, SQLITE_LOCKED
			return err
		}
		timer := time.NewTimer(2 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

func enterOnce(ctx context.Context, db *sql.DB, resource string, claim fence.Claim) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := sqlite.Enter(ctx, tx, resource, claim); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func openPostgres(ctx context.Context, o CheckOptions) (*Opened, error) {
	cfg, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, err
	}
	postgres.Configure(cfg)
	const others = 2 // reports of claims from the future, and one to spare
	if !strings.Contains(o.URL, "pool_max_conns") {
		cfg.MaxConns = int32(min(o.AtOnce, 1000)) + others
	}
	atOnce := max(1, int(cfg.MaxConns)-others)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	store, err := postgres.New(ctx, pool, postgres.Options{Logger: o.Log}) // also for its look at the schema
	if err != nil {
		pool.Close()
		return nil, err
	}
	var check fencehttp.Check = fencehttp.CheckFunc(func(ctx context.Context, resource string, claim fence.Claim) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return postgres.Enter(ctx, tx, resource, claim) })
	})
	if !o.HighWater {
		check = strictPostgres{store}
	}
	check = limited{check: check, slots: make(chan struct{}, atOnce)}
	return &Opened{Check: check, close: func(ctx context.Context) error {
		err := store.Shutdown(ctx)
		pool.Close()
		return err
	}}, nil
}

// strictPostgres keeps successors out while the request is served.
type strictPostgres struct{ store *postgres.Store }

// Within is part of [fencehttp.Check].
func (s strictPostgres) Within(ctx context.Context, _ string, claim fence.Claim, serve func(ctx context.Context) error) error {
	return s.store.Fenced(ctx, claim, func(ctx context.Context, _ pgx.Tx) error { return serve(ctx) })
}

// limited keeps requests from waiting for a connection while those that have one wait for theirs.
type limited struct {
	check fencehttp.Check
	slots chan struct{}
}

// Within is part of [fencehttp.Check].
func (l limited) Within(ctx context.Context, resource string, claim fence.Claim, serve func(ctx context.Context) error) error {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return &fencehttp.BusyError{Resource: resource, Why: "too many requests are at work on other resources", After: time.Second}
	}
	defer func() { <-l.slots }()
	return l.check.Within(ctx, resource, claim, serve)
}
