package drill

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/store/postgres"
)

// postgresSite is an authority on a PostgreSQL database, with the resource in a schema of the run's own beside it. Each process of a
// drill opens at most four connections: two of the store's pool, the one for renewals, and the resource's.
type postgresSite struct{ url string }

// poolParameter in the URL bounds the store's pool; the driver alone does not know it.
const poolParameter = "pool_max_conns"

// connectWait bounds how long a worker waits for a server that does not answer.
const connectWait = 5 * time.Second

// addresses are the URL for the store, with a bound on its pool, and for a lone connection, without settings of a pool.
func (s postgresSite) addresses() (store, lone string, err error) {
	u, err := url.Parse(s.url)
	if err != nil {
		return "", "", fmt.Errorf("%w: the URL of the database cannot be read", ErrOption) // and is not shown: it may hold a password
	}
	q := u.Query()
	for name := range q {
		if strings.HasPrefix(name, "pool_") {
			q.Del(name)
		}
	}
	if !q.Has("connect_timeout") {
		q.Set("connect_timeout", fmt.Sprint(int(connectWait.Seconds())))
	}
	u.RawQuery = q.Encode()
	lone = u.String()
	q.Set(poolParameter, "2")
	u.RawQuery = q.Encode()
	return u.String(), lone, nil
}

func (s postgresSite) open(ctx context.Context) (authority, error) {
	address, _, err := s.addresses()
	if err != nil {
		return nil, err
	}
	return postgres.Open(ctx, address, postgres.Options{})
}

func (s postgresSite) traits() traits {
	return traits{atOnce: 4, noStepBack: "the authority's clock is the server's, which other programs go by: the drill leaves it alone"}
}

func (s postgresSite) tables() (tables, error) {
	_, address, err := s.addresses()
	if err != nil {
		return tables{}, err
	}
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return tables{}, err
	}
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(1)
	return tables{db: db, prefix: tablePrefix, infix: ".", numbered: "$",
		// The value's row is written before the log's, and stays locked: within a round the log's numbers are in the order of commits.
		create: `
			CREATE SCHEMA {schema};
			CREATE TABLE [value] (round int PRIMARY KEY, content text NOT NULL);
			CREATE TABLE [log] (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, round int NOT NULL, writer text NOT NULL,
				element text NOT NULL, token bigint NOT NULL, content text NOT NULL);
			CREATE TABLE [answer] (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, round int NOT NULL, writer text NOT NULL,
				element text NOT NULL, token bigint NOT NULL, late boolean NOT NULL, unsent boolean NOT NULL, accepted boolean NOT NULL,
				newer bigint NOT NULL, why text NOT NULL);
			CREATE TABLE [event] (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, round int NOT NULL, token bigint NOT NULL,
				what text NOT NULL, at_ns bigint NOT NULL);`,
		remove: `DROP SCHEMA IF EXISTS {schema} CASCADE;
			DO $$ BEGIN
				IF has_table_privilege('tenure.mark', 'DELETE') THEN
					DELETE FROM tenure.mark WHERE starts_with(resource, '{names}');
				END IF;
			END $$;`,
		leftovers: `SELECT nspname::text FROM pg_namespace WHERE starts_with(nspname, '` + tablePrefix + `') AND pg_has_role(nspowner, 'USAGE') LIMIT 4096`,
		form:      `^` + tablePrefix + `([0-9a-f]{8})[0-9a-f]{8}()$`,
		drop:      `DROP SCHEMA IF EXISTS `,
		dropped:   `CASCADE`,
		snapshot:  sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}}, nil
}

func (s postgresSite) verify(ctx context.Context, tx *sql.Tx, claim fence.Claim) error {
	return postgres.VerifySQL(ctx, tx, claim)
}

func (s postgresSite) enter(ctx context.Context, tx *sql.Tx, resource string, claim fence.Claim) error {
	return postgres.EnterSQL(ctx, tx, resource, claim)
}

func (s postgresSite) fenced(ctx context.Context, at authority, claim fence.Claim, fn func(ctx context.Context, tx execer) error) error {
	store, ok := at.(*postgres.Store)
	if !ok {
		return fmt.Errorf("%w: %T is no store on PostgreSQL", ErrProcess, at)
	}
	return store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error { return fn(ctx, pgxExecer{tx}) })
}

// pgxExecer lets what is written for database/sql run in a transaction of the driver's own kind.
type pgxExecer struct{ tx pgx.Tx }

// ExecContext is part of execer.
func (e pgxExecer) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := e.tx.Exec(ctx, query, args...)
	return driver.RowsAffected(tag.RowsAffected()), err
}
