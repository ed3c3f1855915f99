package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/stats"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/postgres"
)

const pgProtectMethod = "Writes to a table that is protected by the name `'orders/' || order_id`, against its twin, which is the same table without protection, in the same number of round trips: " +
	"BEGIN, present, write, COMMIT, 4 of them, and the twin asks SELECT 1 in the place of present. *Present alone* presents, and writes to an unprotected table: what is above it is the work of the triggers. " +
	"A table has 8 columns (order_id and line, which are its key, sku, quantity, price, state, note, changed_at), one more index (changed_at) and PostgreSQL's own fillfactor, 100; each statement and each side has one of its own, with %s rows of %.0f bytes before. " +
	"An UPDATE changes state and changed_at. *HOT* is one that changes quantity, which no index has, with fillfactor 50, so that the new rows stay on their page: the cheapest UPDATE that there is, and the hardest to stand beside. *1,000 rows, a lease each* are one line of each of 1,000 orders, under 1,000 claims in one call; *1,000 rows of one name* are the lines of one order, under one claim. " +
	"The rows come from the server, by generate_series, so that no time to send them hides the check. With 8 goroutines each has an order, a lease and a connection of its own. " +
	"The sides take turns in blocks of a few transactions, and all goroutines run the same side at a time; p50 of a round."

// protectMany is how many rows and leases the larger statements have.
const protectMany = 1000

// The tables of a shape: for each side one, so that they grow alike.
const protectTable = `CREATE TABLE %[1]s (
	order_id int NOT NULL, line int NOT NULL, sku text NOT NULL, quantity int NOT NULL, price numeric(10, 2) NOT NULL, state text NOT NULL, note text NOT NULL, changed_at timestamptz NOT NULL,
	PRIMARY KEY (order_id, line)
) WITH (fillfactor = %[2]d);
CREATE INDEX ON %[1]s (changed_at);`

// protectLines inserts lines $1 to $2 of each of the orders $3 to $4.
const protectLines = `INSERT INTO %s SELECT o, l, 'sku-' || o %% 977, 1 + l %% 5, 19.90, 'new', 'leave at the back door, and ring twice', now() FROM generate_series($3::int, $4::int) o, generate_series($1::int, $2::int) l`

// These change the lines that are there of the orders $1 to $2: with each index, and with none.
const (
	protectUpdate = `UPDATE %s SET state = 'packed', changed_at = clock_timestamp() WHERE order_id BETWEEN $1 AND $2`
	protectHot    = `UPDATE %s SET quantity = quantity + 1 WHERE order_id BETWEEN $1 AND $2`
)

// protectShape is one statement of the comparison.
type protectShape struct {
	name, table string
	limit       float64
	goroutines  []int
	block       int // transactions of one side, by each goroutine, before the next side's turn
	statement   string
	orders      int // that it writes to, each under a claim of its own
	lines       int // of each of them
	fillfactor  int
}

func (s protectShape) rows() int64 { return int64(s.orders) * int64(s.lines) }

func protectShapes() []protectShape {
	return []protectShape{
		{"UPDATE of 1 row", "update_one", 1.5, []int{1, 8}, pgFencedBlock, protectUpdate, 1, 1, 100},
		{"INSERT of 1 row", "insert_one", 1.5, []int{1, 8}, pgFencedBlock, protectLines, 1, 1, 100},
		{"UPDATE of 1,000 rows, a lease each", "update_each", 4, []int{1}, 2, protectUpdate, protectMany, 1, 100},
		{"UPDATE of 1,000 rows, a lease each, HOT", "update_each_hot", 4, []int{1}, 2, protectHot, protectMany, 1, 50},
		{"INSERT of 1,000 rows, a lease each", "insert_each", 4, []int{1}, 2, protectLines, protectMany, 1, 100},
		{"UPDATE of 1,000 rows of one name", "update_shared", 1.3, []int{1}, 2, protectUpdate, 1, protectMany, 100},
		{"UPDATE of 1,000 rows of one name, HOT", "update_shared_hot", 1.3, []int{1}, 2, protectHot, 1, protectMany, 50},
		{"INSERT of 1,000 rows of one name", "insert_shared", 1.3, []int{1}, 2, protectLines, 1, protectMany, 100},
	}
}

// protectSide is who writes, and to which of the tables of a shape.
type protectSide struct {
	name     string
	suffix   string // of the table
	presents bool
	line     *atomic.Int64 // the last that was inserted
}

// The sides.
const (
	protectTwin    = "unprotected"
	protectPresent = "present alone"
	protectFull    = "protected"
)

func protectSides() []protectSide {
	return []protectSide{
		{protectTwin, "_twin", false, new(atomic.Int64)},
		{protectPresent, "_presented", true, new(atomic.Int64)},
		{protectFull, "", true, new(atomic.Int64)},
	}
}

// pgProtectSide is the program whose tables are protected.
type pgProtectSide struct {
	*pgSide
	sides  []protectSide
	claims []fence.Claim // to orders/1 and so on
	conns  []*pgxpool.Conn
	width  float64 // bytes of a row
}

func runPGProtect(ctx context.Context, p *plan, r *report.Report) (err error) {
	pg, err := startPG(ctx, r, nil)
	if err != nil {
		return err
	}
	f := &pgProtectSide{pgSide: pg, sides: protectSides()}
	defer func() { err = errors.Join(err, f.close(context.WithoutCancel(ctx))) }()
	rows := p.pick(20_000, 2_000)
	if err := f.open(ctx, rows, 8); err != nil {
		return err
	}
	r.Method = fmt.Sprintf(pgProtectMethod, report.Format(float64(rows)), f.width)
	found, err := runProtect(ctx, p, protectShapes(), f.turns)
	if err != nil {
		return err
	}
	protectReport(r, protectShapes(), found)
	r.Notes = append(r.Notes,
		"A trigger fires once for each statement, whatever the number of rows, and asks once for each name: so rows of one name cost little, and rows with a lease each cost a look at each lease, at present and again at the write, because what was presented is believed by nobody.",
		"To present a claim locks the row of its lease (FOR SHARE), and PostgreSQL writes a row lock to the row's page and to its log: 1,000 claims are 1,000 such writes in each transaction.")
	return nil
}

// runProtect measures each of the statements, by name, goroutines and round: the p50.
func runProtect(ctx context.Context, p *plan, shapes []protectShape, turns func(protectShape) []fencedRow) (map[string]map[int][]float64, error) {
	found := map[string]map[int][]float64{}
	return found, p.eachRound(ctx, func(int) error {
		for _, shape := range shapes {
			for _, g := range shape.goroutines {
				took, err := takeTurns(ctx, turns(shape), g, shape.block, 3*p.cell)
				if err != nil {
					return err
				}
				for name, each := range took {
					if found[name] == nil {
						found[name] = map[int][]float64{}
					}
					found[name][g] = append(found[name][g], stats.Percentile(each, 50))
				}
			}
		}
		return nil
	})
}

// acquireOrders takes leases to orders/1 to orders/1000, so many at a time as one acquisition may name.
func acquireOrders(ctx context.Context, store lease.Store) (claims []fence.Claim, err error) {
	c, err := newClient(ctx, store, lease.MaxTTL)
	if err != nil {
		return nil, err
	}
	names := make([]string, protectMany)
	for i := range names {
		names[i] = fmt.Sprint("orders/", i+1)
	}
	for some := range slices.Chunk(names, lease.MaxNames) {
		_, grants, err := c.acquire(ctx, some...)
		if err != nil {
			return nil, err
		}
		for _, grant := range grants {
			claims = append(claims, grant.Claim)
		}
	}
	return claims, nil
}

// open acquires the leases, and makes and fills the tables: so many rows in each.
func (f *pgProtectSide) open(ctx context.Context, rows, goroutines int) error {
	store, err := f.store(ctx, f.server.URL(pgDatabase), postgres.Options{})
	if err != nil {
		return err
	}
	if f.claims, err = acquireOrders(ctx, store); err != nil {
		return err
	}
	for _, shape := range protectShapes() {
		for _, side := range f.sides {
			if err := f.fill(ctx, shape, side, rows); err != nil {
				return fmt.Errorf("%s: %w", shape.table+side.suffix, err)
			}
		}
	}
	if f.width, err = f.number(ctx, `SELECT avg(pg_column_size(t))::float8 FROM update_each t`); err != nil {
		return err
	}
	pool, err := f.pool(ctx, f.server.URL(pgDatabase), goroutines)
	if err != nil {
		return err
	}
	for range goroutines {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		f.conns = append(f.conns, conn)
		f.closings = append(f.closings, func(context.Context) error { conn.Release(); return nil })
	}
	return f.warm(ctx)
}

// fill makes one of the tables. Its first orders have the lines that an UPDATE changes, the others one.
func (f *pgProtectSide) fill(ctx context.Context, shape protectShape, side protectSide, rows int) error {
	table := shape.table + side.suffix
	if _, err := f.admin.Exec(ctx, fmt.Sprintf(protectTable, table, shape.fillfactor)); err != nil {
		return err
	}
	lines := fmt.Sprintf(protectLines, table)
	if _, err := f.admin.Exec(ctx, lines, 1, shape.lines, 1, protectMany/shape.lines); err != nil {
		return err
	}
	if _, err := f.admin.Exec(ctx, lines, 1, 1, protectMany+1, rows); err != nil {
		return err
	}
	side.line.Store(protectMany)
	if side.name == protectFull {
		if _, err := postgres.Protect(ctx, f.admin, postgres.Protection{Table: table, Name: `'orders/' || order_id`}); err != nil {
			return err
		}
	}
	_, err := f.admin.Exec(ctx, `ANALYSE `+table)
	return err
}

// warm runs each side on each connection that it will have until its plans are made: PostgreSQL settles on one after five.
func (f *pgProtectSide) warm(ctx context.Context) error {
	for _, shape := range protectShapes() {
		for _, row := range f.turns(shape) {
			for g := range slices.Max(shape.goroutines) {
				for range 6 {
					if err := row.run(ctx, min(g, len(f.conns)-1)); err != nil {
						return fmt.Errorf("%s: %w", row.name, err)
					}
				}
			}
		}
	}
	return nil
}

// turns are the sides of one statement.
func (f *pgProtectSide) turns(shape protectShape) []fencedRow {
	var rows []fencedRow
	for _, side := range f.sides {
		rows = append(rows, fencedRow{shape.name + ": " + side.name, func(ctx context.Context, g int) error { return f.write(ctx, shape, side, g) }})
	}
	return rows
}

// write is one transaction of one side. It is an error if it did not write what the statement is to write: less would be faster.
func (f *pgProtectSide) write(ctx context.Context, shape protectShape, side protectSide, g int) error {
	first, last := g+1, g+shape.orders
	claims := f.claims[first-1 : last]
	text, args := fmt.Sprintf(shape.statement, shape.table+side.suffix), []any{first, last}
	if shape.statement == protectLines {
		line := int(side.line.Add(int64(shape.lines)))
		args = []any{line - shape.lines + 1, line, first, last}
	}
	return pgx.BeginFunc(ctx, f.conns[g].Conn(), func(tx pgx.Tx) (err error) {
		if side.presents {
			err = postgres.Present(ctx, tx, claims...)
		} else {
			_, err = tx.Exec(ctx, `SELECT 1`)
		}
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, text, args...)
		if err == nil && tag.RowsAffected() != shape.rows() {
			err = fmt.Errorf("%d rows were written, want %d", tag.RowsAffected(), shape.rows())
		}
		return postgres.FenceError(claims[0], err)
	})
}

// protectReport shows each statement with each side, and holds the protected one to its twin.
func protectReport(r *report.Report, shapes []protectShape, found map[string]map[int][]float64) {
	t := report.Table{Title: "One transaction, p50 in microseconds, and its ratio to the twin's:", Label: "statement, goroutines",
		Columns: []string{protectTwin + ", us", protectPresent + ", us", protectFull + ", us", "ratio of present alone", "ratio"}}
	for _, shape := range shapes {
		for _, g := range shape.goroutines {
			twin, presented, full := found[shape.name+": "+protectTwin][g], found[shape.name+": "+protectPresent][g], found[shape.name+": "+protectFull][g]
			ratio := stats.Ratios(full, twin)
			t.Rows = append(t.Rows, report.Row{Label: fmt.Sprintf("%s, %d", shape.name, g), Cells: []report.Cell{
				report.Rounds(twin), report.Rounds(presented), report.Rounds(full), report.Rounds(stats.Ratios(presented, twin)), report.Rounds(ratio)}})
			r.Targets = append(r.Targets, report.AtMost(fmt.Sprintf("%s, protected to its twin; goroutines: %d", shape.name, g), shape.limit, "x", ratio))
		}
	}
	r.Tables = append(r.Tables, t)
}
