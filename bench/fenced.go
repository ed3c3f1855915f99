package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/stats"
	"github.com/tenure-go/tenure/bench/twin"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/sqlite"
)

const fencedMethod = "A program's own transaction on the authority's file, on a `database/sql` connection of its own: BEGIN IMMEDIATE, one UPDATE of one row of its own table by a prepared statement, " +
	"COMMIT (WAL, synchronous FULL). The same with a check as its first statement. The sides take turns in blocks of a few transactions, one goroutine, nobody else on the file. " +
	"*Prepared* hands the check a transaction with `sqlite.Prepare`, as the write itself has; the others hand it the `*sql.Tx` itself, and each check is parsed anew. `Fenced` is the store's own, turn and bound included: " +
	"it is for information, because it does more."

const fencedBlock = 5 // transactions of one side before the next one's turn

// fencedSide is the program whose writes are to be protected.
type fencedSide struct {
	store    *sqlite.Store
	db       *sql.DB
	update   *sql.Stmt
	claim    fence.Claim
	prepared *sqlite.Prepared
}

// check is what a transaction does before its write.
type check struct {
	name string
	do   func(ctx context.Context, tx *sql.Tx) error // nil: nothing
}

const (
	unfenced      = "unfenced"
	viaFenced     = "Store.Fenced"
	accountsTable = `CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL) STRICT; INSERT INTO account VALUES (1, 0)`
	updateAccount = `UPDATE account SET balance = balance + 1 WHERE id = ?`
)

func (f *fencedSide) checks() []check {
	const resource = "account/1"
	return []check{
		{unfenced, nil},
		{"sqlite.Verify (strict)", func(ctx context.Context, tx *sql.Tx) error { return sqlite.Verify(ctx, tx, f.claim) }},
		{"sqlite.Enter", func(ctx context.Context, tx *sql.Tx) error { return sqlite.Enter(ctx, tx, resource, f.claim) }},
		{"sqlite.Admit", func(ctx context.Context, tx *sql.Tx) error { return sqlite.Admit(ctx, tx, resource, f.claim) }},
		{"sqlite.Verify, prepared", func(ctx context.Context, tx *sql.Tx) error {
			return sqlite.Verify(ctx, f.prepared.In(tx), f.claim)
		}},
		{"sqlite.Enter, prepared", func(ctx context.Context, tx *sql.Tx) error {
			return sqlite.Enter(ctx, f.prepared.In(tx), resource, f.claim)
		}},
	}
}

func runFenced(ctx context.Context, p *plan, r *report.Report) (err error) {
	r.Method = fencedMethod
	f := &fencedSide{}
	defer func() { err = errors.Join(err, f.close(context.WithoutCancel(ctx))) }()
	if err := f.open(ctx, p.path("fenced.db")); err != nil {
		return err
	}
	p50, p10 := map[string][]float64{}, map[string][]float64{}
	err = p.eachRound(ctx, func(int) error {
		took, err := f.takeTurns(ctx, 5*p.cell)
		for name, each := range took {
			p50[name] = append(p50[name], stats.Percentile(each, 50))
			p10[name] = append(p10[name], stats.Percentile(each, 10))
		}
		return err
	})
	if err != nil {
		return err
	}
	f.tables(r, p50, p10)
	return nil
}

func (f *fencedSide) open(ctx context.Context, path string) (err error) {
	if f.store, err = sqlite.Open(ctx, sqlite.Config{Path: path}); err != nil {
		return err
	}
	c, err := newClient(ctx, f.store, lease.MaxTTL)
	if err != nil {
		return err
	}
	_, grants, err := c.acquire(ctx, "account/1")
	if err != nil {
		return err
	}
	f.claim = grants[0].Claim
	if f.db, err = sql.Open("sqlite", twin.DSN(path)); err != nil {
		return err
	}
	f.db.SetMaxOpenConns(1)
	if _, err := f.db.ExecContext(ctx, accountsTable); err != nil {
		return err
	}
	if f.update, err = f.db.PrepareContext(ctx, updateAccount); err != nil {
		return err
	}
	if f.prepared, err = sqlite.Prepare(ctx, f.db); err != nil {
		return err
	}
	for _, check := range f.checks() { // each once: the mark exists then
		if err := f.transact(ctx, check); err != nil {
			return err
		}
	}
	return nil
}

func (f *fencedSide) close(ctx context.Context) error {
	var err error
	if f.prepared != nil {
		err = errors.Join(err, f.prepared.Close())
	}
	if f.update != nil {
		err = errors.Join(err, f.update.Close())
	}
	if f.db != nil {
		err = errors.Join(err, f.db.Close())
	}
	if f.store != nil {
		err = errors.Join(err, f.store.Shutdown(ctx))
	}
	return err
}

// takeTurns runs every side for a block of transactions, again and again until d has passed, and returns how
// long each transaction took in microseconds. Every second time the order is turned round.
func (f *fencedSide) takeTurns(ctx context.Context, d time.Duration) (map[string][]float64, error) {
	checks := append(f.checks(), check{name: viaFenced})
	took := map[string][]float64{}
	for end := time.Now().Add(d); time.Now().Before(end); slices.Reverse(checks) {
		for _, check := range checks {
			for range fencedBlock {
				start := time.Now()
				err := f.transact(ctx, check)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", check.name, err)
				}
				took[check.name] = append(took[check.name], micros(time.Since(start)))
			}
		}
	}
	return took, nil
}

// transact is the caller's transaction, with the check if there is one.
func (f *fencedSide) transact(ctx context.Context, check check) error {
	if check.name == viaFenced {
		return f.store.Fenced(ctx, f.claim, func(ctx context.Context, tx *sqlite.Tx) error {
			_, err := tx.ExecContext(ctx, updateAccount, 1)
			return err
		})
	}
	tx, err := f.db.BeginTx(ctx, nil) // BEGIN IMMEDIATE, by the DSN
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if check.do != nil {
		if err := check.do(ctx, tx); err != nil {
			return err
		}
	}
	update := tx.StmtContext(ctx, f.update) //nolint:sqlclosecheck // the transaction's end closes it
	if _, err := update.ExecContext(ctx, 1); err != nil {
		return err
	}
	return tx.Commit()
}

// tables shows percentiles in microseconds of each round, by the name of the check. The fastest tenth is what a busy machine
// disturbs least.
func (f *fencedSide) tables(r *report.Report, p50, p10 map[string][]float64) {
	t := report.Table{Title: "One transaction, by what it begins with:", Label: "check", Columns: []string{"p50, us", "more than unfenced, us", "ratio to unfenced", "p10, us", "ratio of p10"}}
	for _, check := range append(f.checks(), check{name: viaFenced}) {
		ratios := stats.Ratios(p50[check.name], p50[unfenced])
		var more []float64
		for i, each := range p50[check.name] {
			more = append(more, each-p50[unfenced][i])
		}
		t.Rows = append(t.Rows, report.Row{Label: check.name, Cells: []report.Cell{report.Rounds(p50[check.name]), report.Rounds(more), report.Rounds(ratios),
			report.Rounds(p10[check.name]), report.Rounds(stats.Ratios(p10[check.name], p10[unfenced]))}})
		if check.do != nil {
			r.Targets = append(r.Targets, report.AtMost("a transaction with "+check.name+" to one without", 1.25, "x", ratios))
		}
	}
	r.Tables = append(r.Tables, t)
}
