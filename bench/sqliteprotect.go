package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/twin"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/store/sqlite"
)

const sqliteProtectMethod = "Writes to a table of the authority's file that is protected by the name `'orders/' || order_id`, against its twin without protection, in the same number of statements: BEGIN IMMEDIATE, present, write, done, COMMIT " +
	"(WAL, synchronous FULL), and the twin asks SELECT 1 in the places of present and done. *Present alone* presents, and writes to an unprotected table: what is above it is the work of the triggers. All statements are prepared. " +
	"A table has 8 columns (order_id and line, which are its key, sku, quantity, price, state, note, changed_at) and one more index (changed_at); each statement and each side has one of its own, with %s rows before. " +
	"An UPDATE changes state and changed_at. *1,000 rows, a lease each* are one line of each of 1,000 orders, under 1,000 claims in one call; *1,000 rows of one name* are the lines of one order, under one claim. The rows are made by the statement itself. " +
	"One goroutine on a `database/sql` connection of its own, nobody else on the file; the sides take turns in blocks of a few transactions; p50 of a round. The limits are those that were set for PostgreSQL."

// The same table and statements as PostgreSQL has: see protectTable. Their parameters are those of protectLines and protectUpdate, and the time.
const (
	sqliteTable = `CREATE TABLE %[1]s (
	order_id INTEGER NOT NULL, line INTEGER NOT NULL, sku TEXT NOT NULL, quantity INTEGER NOT NULL, price REAL NOT NULL, state TEXT NOT NULL, note TEXT NOT NULL, changed_at INTEGER NOT NULL,
	PRIMARY KEY (order_id, line)
) STRICT;
CREATE INDEX %[1]s_changed_at ON %[1]s (changed_at)`
	sqliteLines = `WITH RECURSIVE o (o) AS (SELECT ?3 UNION ALL SELECT o + 1 FROM o WHERE o < ?4), l (l) AS (SELECT ?1 UNION ALL SELECT l + 1 FROM l WHERE l < ?2)
	INSERT INTO %s SELECT o, l, 'sku-' || o %% 977, 1 + l %% 5, 19.9, 'new', 'leave at the back door, and ring twice', ?5 FROM o, l`
	sqliteUpdate = `UPDATE %s SET state = 'packed', changed_at = ?3 WHERE order_id BETWEEN ?1 AND ?2`
)

// sqliteProtectShapes are PostgreSQL's, without those that SQLite has not.
func sqliteProtectShapes() []protectShape {
	own := map[string]string{protectUpdate: sqliteUpdate, protectLines: sqliteLines}
	var all []protectShape
	for _, shape := range protectShapes() {
		if statement := own[shape.statement]; statement != "" {
			shape.statement, shape.goroutines = statement, []int{1}
			all = append(all, shape)
		}
	}
	return all
}

// sqliteProtectSide is the program whose tables are protected.
type sqliteProtectSide struct {
	store    *sqlite.Store
	db       *sql.DB
	sides    []protectSide
	claims   []fence.Claim // to orders/1 and so on
	prepared *sqlite.Prepared
	writes   map[string]*sql.Stmt // by table
	nothing  *sql.Stmt
}

func runSQLiteProtect(ctx context.Context, p *plan, r *report.Report) (err error) {
	f := &sqliteProtectSide{}
	defer func() { err = errors.Join(err, f.close(context.WithoutCancel(ctx))) }()
	rows := p.pick(20_000, 2_000)
	r.Method = fmt.Sprintf(sqliteProtectMethod, report.Format(float64(rows)))
	if err := f.open(ctx, p.path("protect.db"), rows); err != nil {
		return err
	}
	found, err := runProtect(ctx, p, sqliteProtectShapes(), f.turns)
	if err != nil {
		return err
	}
	protectReport(r, sqliteProtectShapes(), found)
	r.Notes = append(r.Notes, "SQLite's triggers fire for each row, so rows of one name cost as many looks as rows with a lease each; what rows of one name save is presenting.")
	return nil
}

// open acquires the leases, and makes and fills the tables: so many rows in each. Each side runs once.
func (f *sqliteProtectSide) open(ctx context.Context, path string, rows int) (err error) {
	f.sides, f.writes = protectSides(), map[string]*sql.Stmt{}
	if f.store, err = sqlite.Open(ctx, sqlite.Config{Path: path}); err != nil {
		return err
	}
	if f.claims, err = acquireOrders(ctx, f.store); err != nil {
		return err
	}
	if f.db, err = sql.Open("sqlite", twin.DSN(path)+"&_pragma=foreign_keys(ON)"); err != nil {
		return err
	}
	f.db.SetMaxOpenConns(1)
	if f.prepared, err = sqlite.Prepare(ctx, f.db); err != nil {
		return err
	}
	if f.nothing, err = f.db.PrepareContext(ctx, `SELECT 1`); err != nil {
		return err
	}
	for _, shape := range sqliteProtectShapes() {
		for _, side := range f.sides {
			if err := f.fill(ctx, shape, side, rows); err != nil {
				return fmt.Errorf("%s: %w", shape.table+side.suffix, err)
			}
		}
	}
	for _, shape := range sqliteProtectShapes() {
		for _, side := range f.sides {
			if err := f.write(ctx, shape, side); err != nil {
				return fmt.Errorf("%s: %s: %w", shape.name, side.name, err)
			}
		}
	}
	return nil
}

// fill makes one of the tables, as PostgreSQL's is made, and prepares what is written to it.
func (f *sqliteProtectSide) fill(ctx context.Context, shape protectShape, side protectSide, rows int) (err error) {
	table := shape.table + side.suffix
	if _, err := f.db.ExecContext(ctx, fmt.Sprintf(sqliteTable, table)); err != nil {
		return err
	}
	lines := fmt.Sprintf(sqliteLines, table)
	if _, err := f.db.ExecContext(ctx, lines, 1, shape.lines, 1, protectMany/shape.lines, 0); err != nil {
		return err
	}
	if _, err := f.db.ExecContext(ctx, lines, 1, 1, protectMany+1, rows, 0); err != nil {
		return err
	}
	side.line.Store(protectMany)
	if side.name == protectFull {
		if err := f.store.Protect(ctx, sqlite.Protection{Table: table, Name: `'orders/' || order_id`}); err != nil {
			return err
		}
	}
	f.writes[table], err = f.db.PrepareContext(ctx, fmt.Sprintf(shape.statement, table)) //nolint:sqlclosecheck // close does
	return err
}

func (f *sqliteProtectSide) close(ctx context.Context) error {
	var err error
	if f.prepared != nil {
		err = errors.Join(err, f.prepared.Close())
	}
	if f.nothing != nil {
		err = errors.Join(err, f.nothing.Close())
	}
	for _, write := range f.writes {
		if write != nil {
			err = errors.Join(err, write.Close())
		}
	}
	if f.db != nil {
		err = errors.Join(err, f.db.Close())
	}
	if f.store != nil {
		err = errors.Join(err, f.store.Shutdown(ctx))
	}
	return err
}

// turns are the sides of one statement.
func (f *sqliteProtectSide) turns(shape protectShape) []fencedRow {
	var rows []fencedRow
	for _, side := range f.sides {
		rows = append(rows, fencedRow{shape.name + ": " + side.name, func(ctx context.Context, _ int) error { return f.write(ctx, shape, side) }})
	}
	return rows
}

// write is one transaction of one side. It is an error if it did not write what the statement is to write: less would be faster.
func (f *sqliteProtectSide) write(ctx context.Context, shape protectShape, side protectSide) error {
	now := time.Now().UnixMilli()
	args := []any{1, shape.orders, now}
	if shape.statement == sqliteLines {
		line := int(side.line.Add(int64(shape.lines)))
		args = []any{line - shape.lines + 1, line, 1, shape.orders, now}
	}
	tx, err := f.db.BeginTx(ctx, nil) // BEGIN IMMEDIATE, by the DSN
	if err != nil {
		return err
	}
	defer tx.Rollback()
	before := func() error { return sqlite.Present(ctx, f.prepared.In(tx), f.claims[:shape.orders]...) }
	after := func() error { return sqlite.Done(ctx, f.prepared.In(tx)) }
	if !side.presents {
		before = func() error {
			_, err := tx.StmtContext(ctx, f.nothing).ExecContext(ctx) //nolint:sqlclosecheck // the transaction's end closes it
			return err
		}
		after = before
	}
	if err := before(); err != nil {
		return err
	}
	result, err := tx.StmtContext(ctx, f.writes[shape.table+side.suffix]).ExecContext(ctx, args...) //nolint:sqlclosecheck // the transaction's end closes it
	if err != nil {
		return sqlite.FenceError(err)
	}
	if n, err := result.RowsAffected(); err != nil || n != shape.rows() {
		return errors.Join(err, fmt.Errorf("%d rows were written, want %d", n, shape.rows()))
	}
	if err := after(); err != nil {
		return err
	}
	return tx.Commit()
}
