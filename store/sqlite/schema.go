package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// SchemaVersion is the newest schema that this code knows, and that an opened file has.
const SchemaVersion = 5

// applicationID marks a file that holds nothing but an authority when it is made. Files that were adopted
// keep their own, and user_version is never touched: both belong to the application.
const applicationID = 0x54454e55

// Schema returns the SQL that installs the newest schema, for people who keep it under their own migrations.
// Instants are nanoseconds of authority time. Sessions and leases are two tables, so that a renewal touches no lease.
func Schema() string { return schemaV1 + schemaV2 + schemaV3 + schemaV4 + schemaV5 }

// upgrades are the steps from each version to the next, the first from version 1. They only add: a program of the version before that has the
// file open goes on.
func upgrades() []string { return []string{schemaV2, schemaV3, schemaV4, schemaV5} }

const schemaV1 = `
CREATE TABLE tenure_schema (version INTEGER NOT NULL) STRICT;
INSERT INTO tenure_schema VALUES (1);

-- One row: who this authority is, what it has issued, and how its clock follows from the kernel's.
CREATE TABLE tenure_authority (
	one         INTEGER PRIMARY KEY CHECK (one = 1),
	id          BLOB    NOT NULL,
	origin      INTEGER NOT NULL, -- when it was installed
	issued      INTEGER NOT NULL, -- the highest token granted
	incarnation BLOB    NOT NULL, -- of the last grant, or of the founding; another one makes the tokens jump
	boot_id     TEXT    NOT NULL, -- the kernel that anchor belongs to
	anchor      INTEGER NOT NULL, -- authority time = anchor + the kernel's boot clock
	mark        INTEGER NOT NULL  -- authority time never falls below it
) STRICT;

CREATE TABLE tenure_session (
	id           BLOB    PRIMARY KEY,
	since        INTEGER NOT NULL, -- issued when it was opened: leases up to it are of an earlier session of this id
	owner        TEXT    NOT NULL,
	ttl          INTEGER NOT NULL,
	expiry       INTEGER NOT NULL,
	closed_below BLOB    NOT NULL, -- no acquisition below it is granted any more
	recent       BLOB    NOT NULL, -- ids granted at or above closed_below, 16 bytes each
	ended_up_to  BLOB    NOT NULL, -- tenure_ended has no acquisition of it above this one
	ended        INTEGER NOT NULL, -- 0 while live, else how
	ended_at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tenure_session_live ON tenure_session (expiry, ttl) WHERE ended = 0;
CREATE INDEX tenure_session_over ON tenure_session (ended_at) WHERE ended <> 0;

-- The latest acquisition of each name.
CREATE TABLE tenure_lease (
	name        TEXT    PRIMARY KEY,
	token       INTEGER NOT NULL CHECK (token > 0),
	acquisition BLOB    NOT NULL,
	names       INTEGER NOT NULL, -- how many names the acquisition took
	session     BLOB    NOT NULL,
	max_hold    INTEGER NOT NULL, -- as asked for; 0: none
	hold_end    INTEGER NOT NULL, -- 0: none
	over        INTEGER NOT NULL, -- 0 until a release or revocation is written, then how
	over_at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Acquisitions that are over and whose end must be remembered apart from the lease row.
CREATE TABLE tenure_ended (
	session     BLOB    NOT NULL,
	acquisition BLOB    NOT NULL,
	how         INTEGER NOT NULL,
	reason      TEXT    NOT NULL,
	told        INTEGER NOT NULL, -- 0: a revocation that the session has not confirmed
	at          INTEGER NOT NULL,
	PRIMARY KEY (session, acquisition) -- what one session says of an id closes nothing of another's
) STRICT, WITHOUT ROWID;
CREATE INDEX tenure_ended_at ON tenure_ended (at);

-- Names of which a token was seen that this authority has not issued: no grants until the epoch is raised.
CREATE TABLE tenure_ahead (
	name  TEXT    PRIMARY KEY,
	token INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What protected resources remember. Token 0: the name was admitted and has not entered yet.
CREATE TABLE tenure_mark (
	resource  TEXT    NOT NULL,
	authority BLOB    NOT NULL,
	name      TEXT    NOT NULL,
	token     INTEGER NOT NULL CHECK (token >= 0),
	PRIMARY KEY (resource, authority, name)
) STRICT, WITHOUT ROWID;
`

// migrate installs or checks the schema. The caller holds the turn and no transaction is open.
func (s *Store) migrate(ctx context.Context, conn *sql.Conn) error {
	tx, err := conn.BeginTx(ctx, nil) // BEGIN IMMEDIATE, by the DSN
	if err != nil {
		return err
	}
	defer tx.Rollback()
	found, err := s.inspect(ctx, tx)
	if err != nil {
		return err
	}
	if found.installed && found.version < SchemaVersion {
		for _, step := range upgrades()[found.version-1:] {
			if _, err := tx.ExecContext(ctx, step); err != nil {
				return err
			}
		}
		return tx.Commit()
	}
	if found.installed {
		// Only a write shows that the file can be written: SQLite begins to read where it may not write. It is rolled back.
		_, err = tx.ExecContext(ctx, `UPDATE tenure_schema SET version = version`)
		return err
	}
	if _, err := tx.ExecContext(ctx, Schema()); err != nil {
		return err
	}
	if found.empty {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA application_id = %d`, applicationID)); err != nil {
			return err
		}
	}
	if err := s.found(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// content is what a file holds when it is opened.
type content struct {
	installed, empty bool
	version          int // of what is installed
}

// queryer is a connection or a transaction on it.
type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// inspect reads whose file this is, and returns a [*FileError] unless it is an authority's of a known schema or
// one may be installed in it. It changes nothing.
func (s *Store) inspect(ctx context.Context, q queryer) (content, error) {
	var ours, all, app int
	err := q.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE name = 'tenure_schema'), count(*) FROM sqlite_schema`).Scan(&ours, &all)
	if err != nil {
		return content{}, err
	}
	if ours == 1 {
		version, err := s.checkVersion(ctx, q)
		return content{installed: true, version: version}, err
	}
	if err := q.QueryRowContext(ctx, `PRAGMA application_id`).Scan(&app); err != nil {
		return content{}, err
	}
	empty := all == 0 && app == 0
	if !empty && !s.cfg.Adopt {
		return content{}, &FileError{Path: s.path, Kind: ErrForeignFile,
			Detail: "it is a database with other content and no Tenure tables; set Adopt (tenure migrate --adopt) to install them beside it"}
	}
	return content{empty: empty}, nil
}

func (s *Store) checkVersion(ctx context.Context, q queryer) (int, error) {
	var version int
	err := q.QueryRowContext(ctx, `SELECT version FROM tenure_schema`).Scan(&version)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, &FileError{Path: s.path, Kind: ErrForeignFile, Detail: "tenure_schema is empty: this is not an authority's file"}
	case err != nil:
		return 0, err
	case version < 1:
		return 0, &FileError{Path: s.path, Kind: ErrForeignFile, Detail: fmt.Sprintf("tenure_schema has version %d: this is not an authority's file", version)}
	case version > SchemaVersion:
		return 0, &FileError{Path: s.path, Kind: ErrNewerSchema,
			Detail: fmt.Sprintf("it has schema %d, this program knows %d; use a newer tenure", version, SchemaVersion)}
	}
	return version, nil
}

// found writes the authority's one row.
func (s *Store) found(ctx context.Context, tx *sql.Tx) error {
	id := newRandomID()
	now := s.cfg.wall()
	// The incarnation that makes the file starts at token 1. Any other jumps, also when nothing was granted before:
	// this may be a copy of the file as it was before its first grant.
	_, err := tx.ExecContext(ctx, `INSERT INTO tenure_authority (one, id, origin, issued, incarnation, boot_id, anchor, mark) VALUES (1, ?, ?, 0, ?, ?, ?, ?)`,
		id[:], now, s.current[:], s.bootID, now-int64(s.kernel()), now)
	return err
}
