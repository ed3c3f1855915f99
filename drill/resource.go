package drill

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
)

// resource is the protected thing: for each round one value, a list of elements that every write replaces as a whole,
// in tables of the run's own in the authority's database. Safe for concurrent use.
type resource struct {
	tables
	run     string
	objects *objects // that hold the values instead of a table; nil: none
	files   *files   // the same
	rows    *rows    // in a table that may be protected; nil: values are in the usual one
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
	maxSwept    = 64             // tables, or schemas of tables, that one drill removes
)

// newRun returns the id of a run: when it began, and chance.
func newRun(now time.Time) string {
	return fmt.Sprintf("%08x%08x", uint32(now.Unix()), rand.Uint32())
}

// openResource opens the tables of a run; create makes them.
func openResource(at place, run string) (*resource, error) {
	t, err := at.site().tables()
	if err != nil {
		return nil, err
	}
	r := &resource{tables: t, run: run}
	if at.S3 != "" {
		if r.objects, err = openObjects(at.S3); err != nil {
			return nil, errors.Join(err, t.db.Close())
		}
	}
	if at.Folder != "" {
		r.files = openFiles(at.Folder, run)
	}
	return r, nil
}

func (r *resource) close() error {
	if r.objects != nil {
		r.objects.bucket.Close()
	}
	return r.db.Close()
}

// sql puts the run's table names in place of their short names in brackets, and numbers parameters as the database does.
func (r *resource) sql(text string) string {
	value := r.prefix + r.run + r.infix + "value"
	if r.rows != nil && r.rows.value != "" {
		value = r.rows.value
	}
	return strings.NewReplacer("[value]", value, "[", r.prefix+r.run+r.infix, "]", "", "?", r.numbered,
		"{schema}", r.prefix+r.run, "{names}", namesOf(r.run)).Replace(text)
}

// namesOf is what the names that a run leases begin with. The resource of a round has the name that guards it.
func namesOf(run string) string { return "tenure-drill/" + run + "/" }

func nameOf(run string, round int) string { return namesOf(run) + strconv.Itoa(round) }

// made names what a run makes in the database, for messages.
func (r *resource) made() string {
	if r.infix == "." {
		return "schema " + r.prefix + r.run
	}
	return "tables " + r.prefix + r.run + r.infix + "*"
}

// create makes the run's tables, and its folder.
func (r *resource) create(ctx context.Context) error {
	if r.files != nil {
		if err := r.files.create(ctx); err != nil {
			return err
		}
	}
	return r.exec(ctx, r.tables.create)
}

// remove drops the run's tables, and deletes its objects or files.
func (r *resource) remove(ctx context.Context) error {
	err := r.exec(ctx, r.tables.remove)
	if r.objects != nil {
		err = errors.Join(err, r.objects.remove(ctx, namesOf(r.run), func(string) bool { return true }))
	}
	if r.files != nil {
		err = errors.Join(err, r.files.remove())
	}
	return err
}

// exec runs a statement, or several without arguments, in a transaction of its own.
func (r *resource) exec(ctx context.Context, text string, args ...any) error {
	return r.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, r.sql(text), args...)
		return err
	})
}

// sweep drops the tables of runs that began long ago and were killed before they could.
func (r *resource) sweep(ctx context.Context, now time.Time) error {
	if r.objects != nil {
		if err := r.objects.remove(ctx, objectPrefix, func(key string) bool { return left(key, now) }); err != nil {
			return err
		}
	}
	if r.files != nil {
		if err := r.files.sweep(now); err != nil {
			return err
		}
	}
	return r.inTx(ctx, func(tx *sql.Tx) error {
		old, err := r.old(ctx, tx, now)
		for _, name := range old {
			if _, err := tx.ExecContext(ctx, r.drop+name+" "+r.dropped); err != nil {
				return err
			}
		}
		return err
	})
}

// old are the names of what old runs left; they consist of letters, digits and underscores.
func (r *resource) old(ctx context.Context, tx *sql.Tx, now time.Time) ([]string, error) {
	rows, err := tx.QueryContext(ctx, r.leftovers)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	form, err := regexp.Compile(r.form)
	if err != nil {
		return nil, err
	}
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

// inTx runs fn in a transaction. One that has a file's writer lock from its beginning begins again while others have it.
func (r *resource) inTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	for {
		err := r.tryTx(ctx, fn)
		if r.isBusy == nil || !r.isBusy(err) {
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

// write decides by allow, which may be nil, writes, and records the answer. An error means that it is not known to be either.
func (r *resource) write(ctx context.Context, w writing, allow check) (model.Answer, error) {
	if r.objects != nil {
		return r.writeObject(ctx, w, allow != nil)
	}
	if r.files != nil {
		return r.writeFile(ctx, w, allow != nil)
	}
	if r.rows != nil {
		return r.writeRow(ctx, w, allow)
	}
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
func (r *resource) apply(ctx context.Context, tx execer, w writing) error {
	content, err := json.Marshal(append(append([]string{}, w.base...), w.element))
	if err != nil {
		return err
	}
	if r.rows != nil {
		err = r.rows.put(ctx, r, tx, w.round, string(content))
	} else {
		_, err = tx.ExecContext(ctx, r.sql(`INSERT INTO [value] (round, content) VALUES (?1, ?2)
			ON CONFLICT (round) DO UPDATE SET content = ?2`), w.round, string(content))
	}
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, r.sql(`INSERT INTO [log] (round, writer, element, token, content) VALUES (?1, ?2, ?3, ?4, ?5)`),
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
	return r.exec(ctx, `INSERT INTO [answer] (round, writer, element, token, late, unsent, accepted, newer, why)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)`,
		a.Round, a.Writer, a.Element, int64(a.Token), a.Late, a.Unsent, a.Accepted, int64(a.Newer), a.Why)
}

// saw keeps an event.
func (r *resource) saw(ctx context.Context, e model.Event) error {
	return r.exec(ctx, `INSERT INTO [event] (round, token, what, at_ns) VALUES (?1, ?2, ?3, ?4)`,
		e.Round, int64(e.Token), string(e.What), int64(e.At))
}

// read returns what the resource holds for a round.
func (r *resource) read(ctx context.Context, round int) ([]string, error) {
	var text string
	err := r.db.QueryRowContext(ctx, r.sql(`SELECT content FROM [value] WHERE round = ?1`), round).Scan(&text)
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
