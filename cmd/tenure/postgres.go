package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/store/postgres"
)

// isPostgres reports whether a URL is of a PostgreSQL database.
func isPostgres(text string) bool {
	return strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://")
}

// locatePostgres checks the URL as far as that goes without a connection.
func locatePostgres(text string) (location, error) {
	l := location{url: text, shown: withoutPassword(text), postgres: true}
	if _, err := pgx.ParseConfig(text); err != nil {
		return location{}, usagef("store %q: %v", l.shown, l.redact(err))
	}
	return l, nil
}

// withoutPassword is a URL as it may be shown. Of one that cannot be taken apart, or where a password can stand in another
// place than a URL's (postgres://u:12#3@h, or host=h password=p), only the scheme is.
func withoutPassword(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.User == nil && strings.Contains(u.Host+u.Opaque+u.Path+u.Fragment, "@"),
		u.Scheme == "" && strings.Contains(strings.ToLower(text), "password"):
		return schemeOf(text) + "..."
	case u.Opaque != "", u.User == nil && u.RawQuery == "":
		return text
	}
	q := u.Query()
	for _, secret := range []string{"password", "sslpassword"} {
		if q.Has(secret) {
			q.Set(secret, "xxxxx")
		}
	}
	u.RawQuery = q.Encode()
	return u.Redacted()
}

// schemeOf is a URL's scheme with its colon; empty if what stands there cannot be one.
func schemeOf(text string) string {
	scheme, _, ok := strings.Cut(text, ":")
	if !ok || strings.ContainsFunc(scheme, func(r rune) bool { return r != '+' && (r < 'A' || r > 'z') }) {
		return ""
	}
	return scheme + ":"
}

// redactedError is an error whose text may not hold the URL of a store, which may hold a password.
type redactedError struct {
	err  error
	text string
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

// redact keeps the password of the store out of an error's text. The driver does so too; this is for what it misses.
func (l location) redact(err error) error {
	text := strings.ReplaceAll(err.Error(), l.url, l.shown)
	if u, errURL := url.Parse(l.url); errURL == nil && u.User != nil {
		if password, ok := u.User.Password(); ok && password != "" {
			text = strings.ReplaceAll(text, ":"+password+"@", ":xxxxx@")
			text = strings.ReplaceAll(text, "password="+password, "password=xxxxx")
		}
	}
	if text == err.Error() {
		return err
	}
	return &redactedError{err: err, text: text}
}

// openPostgres opens the store on a database, which has the schema already.
func openPostgres(ctx context.Context, l location, o openOptions) (store, error) {
	if o.adopt {
		return nil, usagef("--adopt is for a file of SQLite; on PostgreSQL Tenure has a schema of its own")
	}
	ctx, cancel := context.WithTimeout(ctx, o.wait)
	defer cancel()
	s, err := postgres.Open(ctx, l.url, postgres.Options{})
	if err != nil {
		return nil, &storeError{fmt.Errorf("%s: %w", l.shown, l.redact(err))}
	}
	return s, nil
}

// connect is for what is no store's business: the schema and the authority. The caller closes the connection.
func connect(ctx context.Context, l location) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(l.url)
	if err != nil {
		return nil, usagef("store %q: %v", l.shown, l.redact(err))
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // a few statements, once: nothing is prepared, so a pooler does not matter
	ctx, cancel := context.WithTimeout(ctx, openWait)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, &storeError{fmt.Errorf("%s: %w", l.shown, l.redact(err))}
	}
	return conn, nil
}

// onConnection runs do on a connection of its own.
func onConnection(ctx context.Context, l location, do func(*pgx.Conn) error) error {
	conn, err := connect(ctx, l)
	if err != nil {
		return err
	}
	err = do(conn)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	_ = conn.Close(ctx) // what was answered stands
	if err != nil {
		return fmt.Errorf("%s: %w", l.shown, l.redact(err))
	}
	return nil
}

// sqlState is the SQLSTATE of a server's error, or "".
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// stateNotAllowed is the SQLSTATE for a right that the role lacks.
const stateNotAllowed = "42501"

// needsSchema says what a drill needs beside the store, where the server refused to make the schema of its resource.
func needsSchema(err error) error {
	if sqlState(err) != stateNotAllowed || errors.Is(err, postgres.ErrSetup) { // those of the store say what they need
		return err
	}
	return &storeError{fmt.Errorf("%w; a drill makes a schema for its resource: let an administrator run GRANT CREATE ON DATABASE ... TO the role of this connection", err)}
}

// storeProblem is the error as one of a store that cannot be used, where its schema is why.
func storeProblem(err error) error {
	var schema *postgres.SchemaError
	if errors.As(err, &schema) {
		return &storeError{err}
	}
	return err
}
