package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/sqlite"
)

const sqliteOpsMethod = "Operations that do nothing, worked off by one process: from the start of the worker until the last one is recorded as done; all were submitted before, by 256 goroutines, which is timed too. Each submission, each attempt " +
	"and each outcome is durable before it is told (WAL, synchronous FULL). Each round has a file of its own."

func runSQLiteOps(ctx context.Context, p *plan, r *report.Report) error {
	r.Method = sqliteOpsMethod
	jobs := p.pick(30_000, 500)
	var submitted, worked []float64
	err := p.eachRound(ctx, func(round int) error {
		submitting, working, err := sqliteOps(ctx, p.path(fmt.Sprintf("operations-%d.db", round)), jobs)
		submitted = append(submitted, float64(jobs)/submitting.Seconds())
		worked = append(worked, float64(jobs)/working.Seconds())
		return err
	})
	if err != nil {
		return err
	}
	r.Tables = append(r.Tables, report.Table{Title: "Operations a second:", Columns: []string{"one process"}, Chart: true, Rows: []report.Row{
		{Label: "submitted", Cells: []report.Cell{report.Rounds(submitted)}}, {Label: "worked off", Cells: []report.Cell{report.Rounds(worked)}},
	}})
	r.Targets = append(r.Targets, report.AtLeast("operations worked off a second", 10_000, "", worked))
	return nil
}

func sqliteOps(ctx context.Context, path string, jobs int) (submitting, working time.Duration, err error) {
	store, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, store.Shutdown(context.WithoutCancel(ctx))) }()
	ops := store.Operations()
	start := time.Now()
	submitters, all := errgroup.WithContext(ctx)
	submitters.SetLimit(256)
	for i := range jobs {
		submitters.Go(func() error {
			_, err := ops.Submit(all, operation.SubmitRequest{ID: fmt.Sprint("o", i), Kind: opsKind, Request: []byte("{}"), Fingerprint: operation.FingerprintOf(opsKind, []byte("{}"))})
			return err
		})
	}
	if err := submitters.Wait(); err != nil {
		return 0, 0, err
	}
	submitting = time.Since(start)
	working, err = workOff(ctx, ops, func(ctx context.Context, done *atomic.Int64) error {
		for {
			if int(done.Load()) >= jobs {
				left, err := ops.List(ctx, operation.ListRequest{States: []operation.State{operation.Pending, operation.Attempting}, Limit: 1})
				if err != nil || len(left) == 0 {
					return err
				}
			}
			if err := pause(ctx, 2*time.Millisecond); err != nil {
				return err
			}
		}
	})
	return submitting, working, err
}
