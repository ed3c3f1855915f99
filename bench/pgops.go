package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/stats"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/postgres"
	"github.com/tenure-go/tenure/worker"
)

const pgOpsMethod = "Operations that do nothing, worked off by one process: from the start of the workers until the last one is recorded as done. All of them were submitted before, and the tables were analysed. The peer is River %s, a job queue, " +
	"with the settings of its own benchmark (2,000 workers, a fetch every 2 ms) on a pool of %d connections; the store has a pool of %d. Both record each attempt: River in the job's row, Tenure durably before the handler begins, and each outcome on the condition that it is " +
	"the current attempt's. Sides take turns, on one server, each with a table of its own that is emptied in between."

const (
	riverVersion = "0.51.2"
	riverWorkers = 2000
	riverPool    = 50
	opsSlots     = 1000 // of the kind, which is the most
	opsKind      = "noop"
)

// The sides.
const (
	opsRiver  = "River"
	opsTenure = "Tenure"
)

type opsSide struct {
	*pgSide
	river *pgxpool.Pool
	store *postgres.Store
	jobs  int
}

func runPGOps(ctx context.Context, p *plan, r *report.Report) (err error) {
	r.Method = fmt.Sprintf(pgOpsMethod, riverVersion, riverPool, storePool)
	pg, err := startPG(ctx, r, map[string]string{"max_connections": "120"})
	if err != nil {
		return err
	}
	o := &opsSide{pgSide: pg, jobs: p.pick(120_000, 500)}
	defer func() { err = errors.Join(err, o.close(context.WithoutCancel(ctx))) }()
	if err := o.open(ctx); err != nil {
		return err
	}
	rates := map[string][]float64{}
	err = p.eachRound(ctx, func(round int) error {
		sides := []string{opsRiver, opsTenure}
		if round%2 == 1 {
			sides = []string{opsTenure, opsRiver}
		}
		for _, side := range sides {
			took, err := o.work(ctx, side)
			if err != nil {
				return fmt.Errorf("%s: %w", side, err)
			}
			rates[side] = append(rates[side], float64(o.jobs)/took.Seconds())
		}
		return nil
	})
	if err != nil {
		return err
	}
	t := report.Table{Title: "Operations a second:", Label: "", Columns: []string{"one process"}, Chart: true}
	for _, side := range []string{opsRiver, opsTenure} {
		t.Rows = append(t.Rows, report.Row{Label: side, Cells: []report.Cell{report.Rounds(rates[side])}})
	}
	r.Tables = append(r.Tables, t)
	r.Targets = append(r.Targets, report.AtLeast("operations a second to River's jobs, one process", 1.3, "x", stats.Ratios(rates[opsTenure], rates[opsRiver])))
	return o.stored(ctx, p, r)
}

func (o *opsSide) open(ctx context.Context) (err error) {
	url := o.server.URL(pgDatabase)
	if o.river, err = o.pool(ctx, url, riverPool); err != nil {
		return err
	}
	if o.store, err = o.pgSide.store(ctx, url, postgres.Options{}); err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(o.river), nil)
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// work fills a side's table, and has it worked off.
func (o *opsSide) work(ctx context.Context, side string) (time.Duration, error) {
	if side == opsRiver {
		return o.workRiver(ctx)
	}
	return o.workTenure(ctx)
}

// noopArgs is the job that does nothing.
type noopArgs struct{}

// Kind implements [river.JobArgs].
func (noopArgs) Kind() string { return opsKind }

type noopWorker struct {
	river.WorkerDefaults[noopArgs]
	done *atomic.Int64
}

// Work implements [river.Worker].
func (w *noopWorker) Work(context.Context, *river.Job[noopArgs]) error {
	w.done.Add(1)
	return nil
}

func (o *opsSide) workRiver(ctx context.Context) (_ time.Duration, err error) {
	if _, err := o.admin.Exec(ctx, `TRUNCATE river_job`); err != nil {
		return 0, err
	}
	var done atomic.Int64
	workers := river.NewWorkers()
	river.AddWorker(workers, &noopWorker{done: &done})
	client, err := river.NewClient(riverpgxv5.New(o.river), &river.Config{
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}}, Workers: workers,
	})
	if err != nil {
		return 0, err
	}
	for left := o.jobs; left > 0; left -= min(left, 5000) {
		params := make([]river.InsertManyParams, min(left, 5000))
		for i := range params {
			params[i].Args = noopArgs{}
		}
		if _, err := client.InsertManyFast(ctx, params); err != nil {
			return 0, err
		}
	}
	if err := o.settled(ctx, `river_job`); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Stop(context.WithoutCancel(ctx))) }()
	if err := o.empty(ctx, &done, `SELECT NOT EXISTS (SELECT FROM river_job WHERE state IN ('available', 'running'))`); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}

// fill submits n operations as one statement. Where it is SQL, what is measured has the same rows.
func (o *opsSide) fill(ctx context.Context, n int) error {
	_, err := o.admin.Exec(ctx, `
		SELECT count(*) FROM generate_series(0, ($1::int - 1) / 1000) g, LATERAL tenure.op_submit_many(
			ARRAY(SELECT 'o' || g * 1000 + i FROM generate_series(1, least(1000, $1 - g * 1000)) i), array_fill($2::text, ARRAY[least(1000, $1 - g * 1000)]),
			array_fill('{}'::bytea, ARRAY[least(1000, $1 - g * 1000)]), array_fill(sha256('x'), ARRAY[least(1000, $1 - g * 1000)]),
			array_fill(0, ARRAY[least(1000, $1 - g * 1000)]), array_fill(interval '0', ARRAY[least(1000, $1 - g * 1000)]))`, n, opsKind)
	return err
}

func (o *opsSide) workTenure(ctx context.Context) (time.Duration, error) {
	if _, err := o.admin.Exec(ctx, `TRUNCATE tenure.operation, tenure.attempt, tenure.conflict`); err != nil {
		return 0, err
	}
	if err := o.fill(ctx, o.jobs); err != nil {
		return 0, err
	}
	if err := o.settled(ctx, `tenure.operation`); err != nil {
		return 0, err
	}
	return workOff(ctx, o.store.Operations(), func(ctx context.Context, done *atomic.Int64) error {
		return o.empty(ctx, done, `SELECT NOT EXISTS (SELECT FROM tenure.operation WHERE state < 4)`)
	})
}

// workOff runs a worker on a store until empty says that all is recorded as done.
func workOff(ctx context.Context, source worker.Source, empty func(ctx context.Context, done *atomic.Int64) error) (time.Duration, error) {
	var done atomic.Int64
	w, err := worker.New(source, worker.Options{Label: "bench"}, worker.Handle(worker.Handler[struct{}, struct{}]{
		Kind: opsKind, Concurrency: opsSlots, Local: true,
		Perform: func(context.Context, *worker.Attempt, struct{}) (struct{}, error) {
			done.Add(1)
			return struct{}{}, nil
		},
	}))
	if err != nil {
		return 0, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- w.Run(running) }()
	err = empty(ctx, &done)
	took := time.Since(start)
	stop()
	return took, errors.Join(err, <-ended)
}

// settled leaves the table as a server that has been up for a while has it.
func (o *opsSide) settled(ctx context.Context, table string) error {
	if _, err := o.admin.Exec(ctx, `VACUUM ANALYSE `+table); err != nil {
		return err
	}
	_, err := o.admin.Exec(ctx, `CHECKPOINT`)
	return err
}

// empty waits until all are done, and then asks the database until it knows of it.
func (o *opsSide) empty(ctx context.Context, done *atomic.Int64, query string) error {
	for {
		if int(done.Load()) >= o.jobs {
			var all bool
			if err := o.admin.QueryRow(ctx, query).Scan(&all); err != nil || all {
				return err
			}
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

// stored compares claims beside few and beside many stored operations, nine in ten of which are done.
func (o *opsSide) stored(ctx context.Context, p *plan, r *report.Report) error {
	few, many := p.pick(10_000, 2_000), p.pick(1_000_000, 4_000)
	t := report.Table{Title: "A claim of 100 operations, milliseconds:", Label: "stored", Columns: []string{"p50", "p99"}}
	var p50, p99 [2]float64
	for i, n := range []int{few, many} {
		took, err := o.claims(ctx, n, p.pick(200, 5))
		if err != nil {
			return err
		}
		p50[i], p99[i] = stats.Percentile(took, 50), stats.Percentile(took, 99)
		t.Rows = append(t.Rows, report.Row{Label: report.Format(float64(n)), Cells: []report.Cell{report.Number(p50[i]), report.Number(p99[i])}})
	}
	r.Tables = append(r.Tables, t)
	r.Targets = append(r.Targets, report.Target{What: fmt.Sprintf("a claim beside %s stored operations to one beside %s, p50", report.Format(float64(many)), report.Format(float64(few))), Must: "<=", Limit: 2, Unit: "x", Got: p50[1] / p50[0]})
	return nil
}

// claims times claims, each of which is completed before the next.
func (o *opsSide) claims(ctx context.Context, stored, times int) ([]float64, error) {
	if _, err := o.admin.Exec(ctx, `TRUNCATE tenure.operation, tenure.attempt, tenure.conflict`); err != nil {
		return nil, err
	}
	if err := o.fill(ctx, stored); err != nil {
		return nil, err
	}
	// Nine in ten are done, as if they had been worked off; written by hand, because a million attempts take a while.
	if _, err := o.admin.Exec(ctx, `UPDATE tenure.operation SET state = 4, step = 1, known = 5, number = 1, attempts = 1, began = created, ended = created, decided = created, own = true, worker = '' WHERE submission % 10 <> 0`); err != nil {
		return nil, err
	}
	if err := o.settled(ctx, `tenure.operation`); err != nil {
		return nil, err
	}
	ops := o.store.Operations()
	req := operation.ClaimRequest{TTL: time.Minute, Limit: 100, Kinds: []operation.KindClaim{{Kind: opsKind, Limit: 100, Timeout: time.Minute, MaxAttempts: 1}}}
	var took []float64
	for range min(times, stored/10/req.Limit) {
		start := time.Now()
		jobs, err := ops.Claim(ctx, req)
		took = append(took, time.Since(start).Seconds()*1000)
		if err != nil {
			return nil, err
		}
		if len(jobs) != req.Limit {
			return nil, fmt.Errorf("claimed %d of %d", len(jobs), req.Limit)
		}
		all := make([]operation.Completion, len(jobs))
		for i, j := range jobs {
			all[i] = operation.Completion{Ref: j.Ref, Answer: operation.Answer{Known: operation.Effective}}
		}
		errs, err := ops.Complete(ctx, all)
		if err := errors.Join(append(errs, err)...); err != nil {
			return nil, err
		}
	}
	return took, nil
}
