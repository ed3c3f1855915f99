package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/stats"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/postgres"
)

const pgFencedMethod = "A program's own UPDATE of one row by primary key, each goroutine on a row, a lease and a connection of its own, with a check before it; against its twin without, in the same number of round trips. " +
	"*In the write* is one statement, whose condition is the check: for blind writes. *One batch* sends check and write together, 1 round trip, one implicit transaction. *In a transaction* is BEGIN, check and write together, COMMIT: 3 round trips. *Separate statements* is BEGIN, check, write, COMMIT: 4, " +
	"and its twin asks SELECT 1 in the check's place. `Store.Fenced` is the store's own, which bounds the transaction's time too; it is set against the twin *in a transaction*, for information. The sides take turns in blocks of a few transactions, and all goroutines run the same side at a time."

const pgFencedBlock = 8 // transactions of one side, by each goroutine, before the next side's turn

// fencedForm is a way to send a write and its check.
type fencedForm struct {
	name string
	// run does one transaction; check queues nothing, or a check, into the batch.
	run func(ctx context.Context, conn *pgx.Conn, c fencedCheck, w *fencedWriter) error
}

// fencedCheck is one of the checks, in both shapes; the zero value of queue and do is the twin.
type fencedCheck struct {
	name  string
	limit float64
	queue func(b *pgx.Batch, w *fencedWriter) error
	do    func(ctx context.Context, tx pgx.Tx, w *fencedWriter) error
	// within is the condition that makes the write check itself, with its arguments from $2 on; empty where there is no such form.
	within string
	args   func(w *fencedWriter) []any
}

// fencedWriter is a goroutine's: its row, which is its resource, and its claim.
type fencedWriter struct {
	id       int
	resource string
	claim    fence.Claim
}

const updatePGAccount = `UPDATE account SET balance = balance + 1 WHERE id = $1`

func fencedChecks() []fencedCheck {
	return []fencedCheck{
		{name: unfenced},
		{"Verify (strict)", 1.25,
			func(b *pgx.Batch, w *fencedWriter) error { return postgres.QueueVerify(b, w.claim) },
			func(ctx context.Context, tx pgx.Tx, w *fencedWriter) error { return postgres.Verify(ctx, tx, w.claim) },
			` AND (SELECT tenure.verify($2::uuid, $3, $4::uuid, $5)) IS NOT NULL`,
			func(w *fencedWriter) []any {
				return []any{w.id, w.claim.Authority.String(), w.claim.Name, w.claim.Acquisition.String(), int64(w.claim.Token)}
			}},
		{"Enter", 1.15,
			func(b *pgx.Batch, w *fencedWriter) error { return postgres.QueueEnter(b, w.resource, w.claim) },
			func(ctx context.Context, tx pgx.Tx, w *fencedWriter) error {
				return postgres.Enter(ctx, tx, w.resource, w.claim)
			}, "", nil},
		{"Admit", 1.15,
			func(b *pgx.Batch, w *fencedWriter) error { return postgres.QueueAdmit(b, w.resource, w.claim) },
			func(ctx context.Context, tx pgx.Tx, w *fencedWriter) error {
				return postgres.Admit(ctx, tx, w.resource, w.claim)
			},
			` AND (SELECT tenure.admit($2, $3::uuid, $4, $5::uuid, $6)) IS NOT NULL`,
			func(w *fencedWriter) []any {
				return []any{w.id, w.resource, w.claim.Authority.String(), w.claim.Name, w.claim.Acquisition.String(), int64(w.claim.Token)}
			}},
	}
}

func fencedForms() []fencedForm {
	return []fencedForm{{inTheWrite, withinTheWrite}, {"one batch", inOneBatch}, {"in a transaction", inTransaction}, {"separate statements", separately}}
}

const inTheWrite = "in the write"

// has reports whether the check can be sent in that form: a holder that reads must enter by a statement of its own.
func (f fencedForm) has(c fencedCheck) bool {
	return f.name != inTheWrite || c.do == nil || c.within != ""
}

func withinTheWrite(ctx context.Context, conn *pgx.Conn, c fencedCheck, w *fencedWriter) error {
	if c.within == "" {
		_, err := conn.Exec(ctx, updatePGAccount, w.id)
		return err
	}
	_, err := conn.Exec(ctx, updatePGAccount+c.within, c.args(w)...)
	return postgres.FenceError(w.claim, err)
}

// checkAndWrite is the batch of both.
func checkAndWrite(c fencedCheck, w *fencedWriter) (*pgx.Batch, error) {
	batch := new(pgx.Batch)
	if c.queue != nil {
		if err := c.queue(batch, w); err != nil {
			return nil, err
		}
	}
	batch.Queue(updatePGAccount, w.id)
	return batch, nil
}

func inOneBatch(ctx context.Context, conn *pgx.Conn, c fencedCheck, w *fencedWriter) error {
	batch, err := checkAndWrite(c, w)
	if err != nil {
		return err
	}
	return postgres.FenceError(w.claim, conn.SendBatch(ctx, batch).Close())
}

func inTransaction(ctx context.Context, conn *pgx.Conn, c fencedCheck, w *fencedWriter) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		batch, err := checkAndWrite(c, w)
		if err != nil {
			return err
		}
		return postgres.FenceError(w.claim, tx.SendBatch(ctx, batch).Close())
	})
}

func separately(ctx context.Context, conn *pgx.Conn, c fencedCheck, w *fencedWriter) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
		if c.do == nil {
			_, err = tx.Exec(ctx, `SELECT 1`)
		} else {
			err = c.do(ctx, tx, w)
		}
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, updatePGAccount, w.id)
		return err
	})
}

// pgFencedSide is the program whose writes are to be protected.
type pgFencedSide struct {
	*pgSide
	store   *postgres.Store
	writers []*fencedWriter
	conns   []*pgxpool.Conn
}

// fencedRow is one row of the table.
type fencedRow struct {
	name string
	run  func(ctx context.Context, g int) error
}

func runPGFenced(ctx context.Context, p *plan, r *report.Report) (err error) {
	r.Method = pgFencedMethod
	pg, err := startPG(ctx, r, nil)
	if err != nil {
		return err
	}
	f := &pgFencedSide{pgSide: pg}
	defer func() { err = errors.Join(err, f.close(context.WithoutCancel(ctx))) }()
	goroutines := []int{1, 8}
	if err := f.open(ctx, goroutines[len(goroutines)-1]); err != nil {
		return err
	}
	found := map[string]map[int][]float64{}
	err = p.eachRound(ctx, func(int) error {
		for _, g := range goroutines {
			took, err := takeTurns(ctx, f.rows(), g, pgFencedBlock, 3*p.cell)
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
		return nil
	})
	if err != nil {
		return err
	}
	f.tables(r, found, goroutines)
	return nil
}

func (f *pgFencedSide) open(ctx context.Context, goroutines int) error {
	var err error
	if f.store, err = f.pgSide.store(ctx, f.server.URL(pgDatabase), postgres.Options{}); err != nil {
		return err
	}
	c, err := newClient(ctx, f.store, lease.MaxTTL)
	if err != nil {
		return err
	}
	if _, err := f.admin.Exec(ctx, `CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50)`); err != nil {
		return err
	}
	pool, err := f.pool(ctx, f.server.URL(pgDatabase), goroutines)
	if err != nil {
		return err
	}
	for g := range goroutines {
		w := &fencedWriter{id: g, resource: "account/" + strconv.Itoa(g)}
		if _, err := f.admin.Exec(ctx, `INSERT INTO account VALUES ($1, 0)`, g); err != nil {
			return err
		}
		_, grants, err := c.acquire(ctx, w.resource)
		if err != nil {
			return err
		}
		w.claim = grants[0].Claim
		f.writers = append(f.writers, w)
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		f.conns = append(f.conns, conn)
		f.closings = append(f.closings, func(context.Context) error { conn.Release(); return nil })
	}
	for _, row := range f.rows() { // each once: the marks exist then, and the statements are prepared
		for g := range goroutines {
			if err := row.run(ctx, g); err != nil {
				return fmt.Errorf("%s: %w", row.name, err)
			}
		}
	}
	return nil
}

// rows are the sides: each form with each check, and the store's own.
func (f *pgFencedSide) rows() []fencedRow {
	var rows []fencedRow
	for _, form := range fencedForms() {
		for _, check := range fencedChecks() {
			if !form.has(check) {
				continue
			}
			rows = append(rows, fencedRow{form.name + ": " + check.name, func(ctx context.Context, g int) error {
				return form.run(ctx, f.conns[g].Conn(), check, f.writers[g])
			}})
		}
	}
	return append(rows, fencedRow{viaFenced, func(ctx context.Context, g int) error {
		return f.store.Fenced(ctx, f.writers[g].claim, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, updatePGAccount, f.writers[g].id)
			return err
		})
	}})
}

// takeTurns runs every row for a block of transactions by each goroutine, again and again until d has passed, and returns how long each
// transaction took in microseconds. Every second time the order is turned round.
func takeTurns(ctx context.Context, rows []fencedRow, goroutines, block int, d time.Duration) (map[string][]float64, error) {
	took := map[string][]float64{}
	for end := time.Now().Add(d); time.Now().Before(end); slices.Reverse(rows) {
		for _, row := range rows {
			each, errs := make([][]float64, goroutines), make([]error, goroutines)
			var wg sync.WaitGroup
			for g := range goroutines {
				wg.Go(func() {
					for range block {
						start := time.Now()
						if errs[g] = row.run(ctx, g); errs[g] != nil {
							return
						}
						each[g] = append(each[g], micros(time.Since(start)))
					}
				})
			}
			wg.Wait()
			if err := errors.Join(errs...); err != nil {
				return nil, fmt.Errorf("%s: %w", row.name, err)
			}
			took[row.name] = append(took[row.name], slices.Concat(each...)...)
		}
	}
	return took, nil
}

func (f *pgFencedSide) tables(r *report.Report, found map[string]map[int][]float64, goroutines []int) {
	var names, fenced []string
	twin, limit := map[string]string{viaFenced: "in a transaction: " + unfenced}, map[string]float64{}
	for _, form := range fencedForms() {
		for _, check := range fencedChecks() {
			if !form.has(check) {
				continue
			}
			name := form.name + ": " + check.name
			names = append(names, name)
			if check.do != nil {
				fenced = append(fenced, name)
				twin[name], limit[name] = form.name+": "+unfenced, check.limit
			}
		}
	}
	ratio := func(name string, g int) []float64 { return stats.Ratios(found[name][g], found[twin[name]][g]) }
	r.AddTable("Ratio to the twin without a check, of p50:", goroutines, append(slices.Clone(fenced), viaFenced), ratio)
	r.Tables[len(r.Tables)-1].Chart = true
	r.AddTable("One transaction, p50 in microseconds:", goroutines, append(names, viaFenced), func(name string, g int) []float64 { return found[name][g] })
	r.Notes = append(r.Notes,
		"A check is a second statement to bind and execute, a call of a PL/pgSQL function, and for a mark a second row to write. In one batch that stands against a single round trip; "+
			"where there are more round trips it is the smaller part. At 8 goroutines the processors, which server and load share, are busy, so that its processor time shows in full.")
	for _, name := range fenced {
		for _, g := range goroutines {
			r.Targets = append(r.Targets, report.AtMost(fmt.Sprintf("%s, to its twin; goroutines: %d", name, g), limit[name], "x", ratio(name, g)))
		}
	}
}
