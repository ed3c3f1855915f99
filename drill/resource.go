package drill

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/store/sqlite"
)

// resource is the protected thing: for each round one value, a list of elements that every write replaces as a whole,
// in tables of the run's own in the authority's file. Safe for concurrent use.
type resource struct {
	db  *sql.DB
	run string
}

// writing is a write on its way to the resource.
type writing struct {
	round   int
	writer  string
	element string
	base    []string // what the writer has read; it writes this and the element
	claim   fence.Claim
	late    bool
}

// check decides about a write in the transaction that would make it. It returns a [*fence.RefusedError] to refuse.
type check func(ctx context.Context, tx *sql.Tx, claim fence.Claim) error

const (
	tablePrefix = "tenure_drill_"
	leftAfter   = 24 * time.Hour // tables of a drill that was killed are removed by a later one after this
	maxSwept    = 64             // tables that one drill removes
	busyWait    = 2 * time.Second
)

// newRun returns the id of a run: when it began, and chance.
func newRun(now time.Time) string {
	return fmt.Sprintf("%08x%08x", uint32(now.Unix()), rand.Uint32())
}

// openResource opens the file with the library that the store uses: another one would break its locks.
func openResource(path, run string) (*resource, error) {
	q := url.Values{"_txlock": {"immediate"}}
	q.Add("_pragma", "busy_timeout("+strconv.FormatInt(busyWait.Milliseconds(), 10)+")")
	q.Add("_pragma", "synchronous(FULL)")
	dsn := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: q.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return &resource{db: db, run: run}, nil
}

func (r *resource) close() error { return r.db.Close() }

// sql puts the run's table names in place of their short names in brackets.
func (r *resource) sql(text string) string {
	return strings.NewReplacer("[", tablePrefix+r.run+"_", "]", "").Replace(text)
}

// create makes the run's tables.
func (r *resource) create(ctx context.Context) error {
	return r.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, r.sql(`
			CREATE TABLE [value] (round INTEGER PRIMARY KEY, content TEXT NOT NULL) STRICT;
			CREATE TABLE [log] (seq INTEGER PRIMARY KEY, round INTEGER NOT NULL, writer TEXT NOT NULL, element TEXT NOT NULL,
				token INTEGER NOT NULL, content TEXT NOT NULL) STRICT;
			CREATE TABLE [answer] (seq INTEGER PRIMARY KEY, round INTEGER NOT NULL, writer TEXT NOT NULL, element TEXT NOT NULL,
				token INTEGER NOT NULL, late INTEGER NOT NULL, unsent INTEGER NOT NULL, accepted INTEGER NOT NULL,
				newer INTEGER NOT NULL, why TEXT NOT NULL) STRICT;
			CREATE TABLE [event] (seq INTEGER PRIMARY KEY, round INTEGER NOT NULL, token INTEGER NOT NULL,
				what TEXT NOT NULL, at_ns INTEGER NOT NULL) STRICT;`))
		return err
	})
}

// remove drops the run's tables.
func (r *resource) remove(ctx context.Context) error {
	return r.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, r.sql(`DROP TABLE IF EXISTS [value]; DROP TABLE IF EXISTS [log];
			DROP TABLE IF EXISTS [answer]; DROP TABLE IF EXISTS [event];`))
		return err
	})
}

// sweep drops the tables of runs that began long ago and were killed before they could.
func (r *resource) sweep(ctx context.Context, now time.Time) error {
	return r.inTx(ctx, func(tx *sql.Tx) error {
		old, err := leftovers(ctx, tx, now)
		for _, name := range old {
			if _, err := tx.ExecContext(ctx, `DROP TABLE IF EXISTS "`+name+`"`); err != nil {
				return err
			}
		}
		return err
	})
}

// leftovers are the names of old tables; they consist of letters, digits and underscores.
func leftovers(ctx context.Context, tx *sql.Tx, now time.Time) ([]string, error) {
	rows, err := tx.QueryContext(ctx, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB '`+tablePrefix+`*' LIMIT 4096`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	form := regexp.MustCompile(`^` + tablePrefix + `([0-9a-f]{8})[0-9a-f]{8}_(value|log|answer|event)$`)
	var old []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		match := form.FindStringSubmatch(name)
		if match == nil || len(old) == maxSwept {
			continue
		}
		began, err := strconv.ParseUint(match[1], 16, 32)
		if err != nil {
			return nil, err
		}
		if now.Sub(time.Unix(int64(began), 0)) > leftAfter {
			old = append(old, name)
		}
	}
	return old, rows.Err()
}

// inTx runs fn in a transaction that has the writer lock from its beginning, and begins again while others have it.
func (r *resource) inTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	for {
		err := r.tryTx(ctx, fn)
		if !isBusy(err) {
			return err
		}
		if !sleep(ctx, time.Millisecond+rand.N(4*time.Millisecond)) {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

func (r *resource) tryTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// isBusy reports whether SQLite said that another connection is writing (SQLITE_BUSY, SQLITE_LOCKED).
func isBusy(err error) bool {
	var coded interface{ Code() int }
	return errors.As(err, &coded) && (coded.Code()&0xff == 5 || coded.Code()&0xff == 6)
}

// write decides by allow, which may be nil, writes, and records the answer. An error means that it is not known to be either.
func (r *resource) write(ctx context.Context, w writing, allow check) (model.Answer, error) {
	err := r.inTx(ctx, func(tx *sql.Tx) error {
		if allow != nil {
			if err := allow(ctx, tx, w.claim); err != nil {
				return err
			}
		}
		return r.apply(ctx, tx, w)
	})
	return r.answered(ctx, w, err)
}

// apply replaces the value and logs it, in the transaction of the caller.
func (r *resource) apply(ctx context.Context, tx sqlite.DBTX, w writing) error {
	content, err := json.Marshal(append(append([]string{}, w.base...), w.element))
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, r.sql(`INSERT INTO [value] (round, content) VALUES (?1, ?2)
		ON CONFLICT (round) DO UPDATE SET content = ?2`), w.round, string(content)); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, r.sql(`INSERT INTO [log] (round, writer, element, token, content) VALUES (?, ?, ?, ?, ?)`),
		w.round, w.writer, w.element, int64(w.claim.Token), string(content))
	return err
}

// answered makes the resource's answer of what became of a write's transaction, and records it.
func (r *resource) answered(ctx context.Context, w writing, err error) (model.Answer, error) {
	a := model.Answer{Round: w.round, Writer: w.writer, Element: w.element, Token: w.claim.Token, Late: w.late, Accepted: err == nil}
	var refused *fence.RefusedError
	if errors.As(err, &refused) {
		a.Newer, a.Why = refused.Newer, refused.Why.String()
	} else if err != nil {
		return a, err
	}
	return a, r.record(ctx, a)
}

// record keeps an answer, in a transaction of its own.
func (r *resource) record(ctx context.Context, a model.Answer) error {
	return r.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, r.sql(`INSERT INTO [answer] (round, writer, element, token, late, unsent, accepted, newer, why)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`),
			a.Round, a.Writer, a.Element, int64(a.Token), a.Late, a.Unsent, a.Accepted, int64(a.Newer), a.Why)
		return err
	})
}

// saw keeps an event.
func (r *resource) saw(ctx context.Context, e model.Event) error {
	return r.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, r.sql(`INSERT INTO [event] (round, token, what, at_ns) VALUES (?, ?, ?, ?)`),
			e.Round, int64(e.Token), string(e.What), int64(e.At))
		return err
	})
}

// read returns what the resource holds for a round.
func (r *resource) read(ctx context.Context, round int) ([]string, error) {
	var text string
	err := r.db.QueryRowContext(ctx, r.sql(`SELECT content FROM [value] WHERE round = ?`), round).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var content []string
	err = json.Unmarshal([]byte(text), &content)
	return content, err
}
