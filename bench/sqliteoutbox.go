package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/store/sqlite"
)

const sqliteOutboxMethod = "Messages of 100 bytes without headers, in a file of its own each round (WAL, synchronous FULL). *Appended one by one*: `Append` of one message from 1 and 64 goroutines, each durable before it is told. *Appended by the thousand*: calls of 1,000 from one goroutine. " +
	"*Claimed and settled*: one relay that publishes nothing, in batches of 1,000; *ordered* are messages of 200 keys."

func runSQLiteOutbox(ctx context.Context, p *plan, r *report.Report) error {
	r.Method = sqliteOutboxMethod
	found := rounds{}
	err := p.eachRound(ctx, func(round int) error {
		return sqliteOutbox(ctx, p, p.path(fmt.Sprintf("outbox-%d.db", round)), found)
	})
	if err != nil {
		return err
	}
	t := report.Table{Title: "Messages a second:", Columns: []string{"one process"}, Chart: true}
	for _, what := range []string{"appended one by one, 1 goroutine", "appended one by one, 64 goroutines", "appended by the thousand", "claimed and settled", "claimed and settled, ordered"} {
		t.Rows = append(t.Rows, report.Row{Label: what, Cells: []report.Cell{report.Rounds(found[what])}})
	}
	r.Tables = append(r.Tables, t)
	return nil
}

func sqliteOutbox(ctx context.Context, p *plan, path string, found rounds) (err error) {
	store, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Shutdown(context.WithoutCancel(ctx))) }()
	mail, payload, many := store.Outbox(), outboxPayload(), p.pick(50_000, 1000)
	timed := func(what string, n int, work func() error) error {
		start := time.Now()
		err := work()
		found[what] = append(found[what], float64(n)/time.Since(start).Seconds())
		return err
	}
	single := func(goroutines, n int) func() error {
		return func() error {
			working, all := errgroup.WithContext(ctx)
			working.SetLimit(goroutines)
			for range n {
				working.Go(func() error {
					_, err := mail.Append(all, []outbox.Message{{Topic: outboxTopic, Payload: payload}})
					return err
				})
			}
			return working.Wait()
		}
	}
	relayed := func(n int) func() error {
		return func() error {
			_, err := drain(ctx, 1, n, func(ctx context.Context) (int, error) { n, _, err := publish(ctx, mail, outboxBatch); return n, err })
			return err
		}
	}
	few, some := p.pick(5000, 100), p.pick(30_000, 300)
	for _, step := range []struct {
		what string
		n    int
		work func() error
	}{
		{"appended one by one, 1 goroutine", few, single(1, few)},
		{"appended one by one, 64 goroutines", some, single(64, some)},
		{"appended by the thousand", many, func() error { return appendMessages(ctx, mail, payload, many, 0) }},
		{"claimed and settled", few + some + many, relayed(few + some + many)},
		{"appended, ordered", many, func() error { return appendMessages(ctx, mail, payload, many, outboxKeys) }},
		{"claimed and settled, ordered", many, relayed(many)},
	} {
		if err := timed(step.what, step.n, step.work); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}
