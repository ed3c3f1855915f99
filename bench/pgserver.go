package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/bench/handwritten"
	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/internal/testdb/pgserver"
	"github.com/tenure-go/tenure/store/postgres"
)

// pgDatabase is the database that every PostgreSQL benchmark uses, on a server of its own.
const pgDatabase = "postgres"

// pgSide is a private PostgreSQL server with both schemas in it, and the pools that were made on it.
type pgSide struct {
	server   *pgserver.Server
	bouncer  *pgserver.Bouncer
	pools    []*pgxpool.Pool
	stores   []*postgres.Store
	admin    *pgxpool.Pool
	closings []func(context.Context) error
}

// pgSettings are what a server for this machine would be set to: durable, with checkpoints kept out of measurements of a second.
func pgSettings() map[string]string {
	return map[string]string{
		"shared_buffers":     "256MB",
		"max_wal_size":       "8GB",
		"checkpoint_timeout": "1h",
	}
}

// startPG starts a server and installs the schemas. Close it with close, also after an error of its own.
func startPG(ctx context.Context, r *report.Report, settings map[string]string) (_ *pgSide, err error) {
	all := pgSettings()
	for name, value := range settings {
		all[name] = value
	}
	server, err := pgserver.Start(ctx, pgserver.Options{Durable: true, Settings: all})
	if err != nil {
		return nil, err
	}
	s := &pgSide{server: server}
	if err := s.install(ctx, r); err != nil {
		return nil, errors.Join(err, s.close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *pgSide) install(ctx context.Context, r *report.Report) (err error) {
	if s.admin, err = s.pool(ctx, s.server.URL(pgDatabase), 2); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.server.URL(pgDatabase))
	if err != nil {
		return err
	}
	_, err = postgres.Migrate(ctx, conn, postgres.MigrateOptions{})
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return err
	}
	if _, err := s.admin.Exec(ctx, handwritten.Schema); err != nil {
		return err
	}
	var version string
	if err := s.admin.QueryRow(ctx, `SHOW server_version`).Scan(&version); err != nil {
		return err
	}
	r.Machine.PostgreSQL, _, _ = strings.Cut(version, " ")
	return nil
}

// close ends what was opened, last first, and removes the server.
func (s *pgSide) close(ctx context.Context) error {
	var err error
	for i := len(s.closings) - 1; i >= 0; i-- {
		err = errors.Join(err, s.closings[i](ctx))
	}
	for _, store := range s.stores {
		err = errors.Join(err, store.Shutdown(ctx))
	}
	for _, pool := range s.pools {
		pool.Close()
	}
	if s.bouncer != nil {
		err = errors.Join(err, s.bouncer.Close())
	}
	return errors.Join(err, s.server.Close())
}

// pool makes a pool of exactly so many connections, all of them open before it returns.
func (s *pgSide) pool(ctx context.Context, url string, size int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.MinConns = int32(size), int32(size)
	postgres.Configure(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	s.pools = append(s.pools, pool)
	conns := make([]*pgxpool.Conn, 0, size)
	for range size {
		conn, acquireErr := pool.Acquire(ctx)
		if acquireErr != nil {
			err = acquireErr
			break
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Release()
	}
	return pool, err
}

// storePool is how many connections a store of the benchmark may use.
const storePool = 8

// store makes a store on a pool of its own.
func (s *pgSide) store(ctx context.Context, url string, o postgres.Options) (*postgres.Store, error) {
	pool, err := s.pool(ctx, url, storePool)
	if err != nil {
		return nil, err
	}
	store, err := postgres.New(ctx, pool, o)
	if err != nil {
		return nil, err
	}
	s.stores = append(s.stores, store)
	return store, nil
}

// pooled is the connection string through PgBouncer in transaction mode, where named prepared statements fail.
func (s *pgSide) pooled(ctx context.Context) (string, error) {
	if s.bouncer == nil {
		bouncer, err := s.server.StartBouncer(ctx, pgserver.BouncerOptions{})
		if err != nil {
			return "", err
		}
		s.bouncer = bouncer
	}
	return s.bouncer.URL(pgDatabase) + "&default_query_exec_mode=cache_describe", nil
}

// number reads one figure.
func (s *pgSide) number(ctx context.Context, sql string, args ...any) (n float64, err error) {
	if err = s.admin.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		err = fmt.Errorf("%s: %w", sql, err)
	}
	return n, err
}

// processTime is what the server's processes have used, without those that have ended; 0 where that cannot be read.
func (s *pgSide) processTime() time.Duration {
	return familyTime(firstMatch(filepath.Join(s.server.DataDir(), "postmaster.pid"), `^([0-9]+)\n`))
}
