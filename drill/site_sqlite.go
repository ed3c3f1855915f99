package drill

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/store/sqlite"
)

// sqliteSite is an authority in a file, with the resource in the same file.
type sqliteSite struct{ path string }

const busyWait = 2 * time.Second

func (s sqliteSite) open(ctx context.Context) (authority, error) {
	return sqlite.Open(ctx, sqlite.Config{Path: s.path})
}

func (s sqliteSite) traits() traits {
	return traits{stopsOthers: true, atOnce: 10, noStepBack: "the authority's clock is the kernel's and counts from boot: nothing sets it back"}
}

// tables opens the file with the library that the store uses: another one would break its locks.
func (s sqliteSite) tables() (tables, error) {
	q := url.Values{"_txlock": {"immediate"}}
	q.Add("_pragma", "busy_timeout("+strconv.FormatInt(busyWait.Milliseconds(), 10)+")")
	q.Add("_pragma", "synchronous(FULL)")
	q.Add("_pragma", "foreign_keys(ON)") // without it no claim can be presented
	dsn := url.URL{Scheme: "file", Path: filepath.ToSlash(s.path), RawQuery: q.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return tables{}, err
	}
	db.SetMaxOpenConns(1)
	return tables{db: db, prefix: tablePrefix, infix: "_", numbered: "?",
		create: `
			CREATE TABLE [value] (round INTEGER PRIMARY KEY, content TEXT NOT NULL) STRICT;
			CREATE TABLE [log] (seq INTEGER PRIMARY KEY, round INTEGER NOT NULL, writer TEXT NOT NULL, element TEXT NOT NULL,
				token INTEGER NOT NULL, content TEXT NOT NULL) STRICT;
			CREATE TABLE [answer] (seq INTEGER PRIMARY KEY, round INTEGER NOT NULL, writer TEXT NOT NULL, element TEXT NOT NULL,
				token INTEGER NOT NULL, late INTEGER NOT NULL, unsent INTEGER NOT NULL, accepted INTEGER NOT NULL,
				newer INTEGER NOT NULL, why TEXT NOT NULL) STRICT;
			CREATE TABLE [event] (seq INTEGER PRIMARY KEY, round INTEGER NOT NULL, token INTEGER NOT NULL,
				what TEXT NOT NULL, at_ns INTEGER NOT NULL) STRICT;`,
		remove: `DROP TABLE IF EXISTS [value]; DROP TABLE IF EXISTS [log]; DROP TABLE IF EXISTS [answer]; DROP TABLE IF EXISTS [event];
			DELETE FROM tenure_mark WHERE resource GLOB '{names}*';`,
		leftovers: `SELECT name FROM sqlite_schema WHERE type = 'table' AND (name GLOB '` + tablePrefix + `*' OR name GLOB '` + protectedPrefix + `*') LIMIT 4096`,
		form:      `^(?:` + tablePrefix + `|` + protectedPrefix + `)([0-9a-f]{8})[0-9a-f]{8}_(value|log|answer|event|sale|seat|delivery|effect|state|letter)$`,
		drop:      `DROP TABLE IF EXISTS `,
		snapshot:  sql.TxOptions{ReadOnly: true},
		isBusy:    isBusy}, nil
}

// isBusy reports whether SQLite said that another connection is writing (SQLITE_BUSY, SQLITE_LOCKED).
func isBusy(err error) bool {
	var coded interface{ Code() int }
	return errors.As(err, &coded) && (coded.Code()&0xff == 5 || coded.Code()&0xff == 6)
}

func (s sqliteSite) verify(ctx context.Context, tx *sql.Tx, claim fence.Claim) error {
	return sqlite.Verify(ctx, tx, claim)
}

func (s sqliteSite) enter(ctx context.Context, tx *sql.Tx, resource string, claim fence.Claim) error {
	return sqlite.Enter(ctx, tx, resource, claim)
}

func (s sqliteSite) fenced(ctx context.Context, at authority, claim fence.Claim, fn func(ctx context.Context, tx execer) error) error {
	store, ok := at.(*sqlite.Store)
	if !ok {
		return fmt.Errorf("%w: %T is no store in a file", ErrProcess, at)
	}
	return store.Fenced(ctx, claim, func(ctx context.Context, tx *sqlite.Tx) error { return fn(ctx, tx) })
}
