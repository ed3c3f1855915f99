package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/outbox"
)

const pgSnapshotMethod = "One goroutine appends messages without order, 200 a transaction, as long as fewer than 20,000 are waiting, and one relay claims and settles 500 at a time. After %v of that a transaction of REPEATABLE READ takes its snapshot, of another table, and is left open for %v: nothing that is deleted or updated meanwhile " +
	"may be cleaned up. What is compared is the relay's rate in the last sixth of that with its rate before. Once, on a server of its own, with autovacuum as it comes."

const (
	snapshotAhead = 20_000
	snapshotSome  = 200
	snapshotBatch = 500
	snapshotParts = 6
)

func runPGSnapshot(ctx context.Context, p *plan, r *report.Report) (err error) {
	part := time.Duration(p.pick(20_000, 50)) * time.Millisecond
	r.Method = fmt.Sprintf(pgSnapshotMethod, part, snapshotParts*part)
	r.Settings.Rounds = 1
	o, err := openOutbox(ctx, r, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close(context.WithoutCancel(ctx))) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	working, all := errgroup.WithContext(ctx)
	var appended, relayed atomic.Int64
	working.Go(func() error { return o.appending(all, &appended, &relayed) })
	working.Go(func() error {
		for all.Err() == nil {
			n, _, err := publish(all, o.mail, snapshotBatch)
			if err != nil && all.Err() == nil {
				return err
			}
			relayed.Add(int64(n))
		}
		return nil
	})
	before, during, err := o.snapshot(all, part, &relayed)
	stop()
	if failed := working.Wait(); failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	t := report.Table{Title: "Messages claimed and settled a second:", Label: "seconds with the snapshot", Columns: []string{"one relay"}, Rows: []report.Row{{Label: "before", Cells: []report.Cell{report.Number(before)}}}}
	for i, rate := range during {
		until := time.Duration(i+1) * part
		t.Rows = append(t.Rows, report.Row{Label: "to " + strconv.FormatFloat(until.Seconds(), 'g', 3, 64), Cells: []report.Cell{report.Number(rate)}})
	}
	r.Tables = append(r.Tables, t)
	r.Targets = append(r.Targets, report.Target{What: "messages a second at the end of the snapshot to before it", Must: ">=", Limit: 0.5, Unit: "x", Got: during[len(during)-1] / before})
	return nil
}

// appending keeps something to do for the relay, and not more than that.
func (o *outboxSide) appending(ctx context.Context, appended, relayed *atomic.Int64) error {
	for ctx.Err() == nil {
		if appended.Load()-relayed.Load() > snapshotAhead {
			select {
			case <-ctx.Done():
			case <-time.After(time.Millisecond):
			}
			continue
		}
		some := make([]outbox.Message, snapshotSome)
		for i := range some {
			some[i] = outbox.Message{Topic: outboxTopic, Payload: o.payload}
		}
		_, err := o.mail.Append(ctx, some)
		if err != nil && ctx.Err() == nil {
			return err
		}
		appended.Add(int64(len(some))) // also where the end came between: nobody reads it then
	}
	return nil
}

// snapshot measures before and while a snapshot is held, after a start that is not counted.
func (o *outboxSide) snapshot(ctx context.Context, part time.Duration, relayed *atomic.Int64) (before float64, during []float64, err error) {
	rate := func() (float64, error) {
		start, had := time.Now(), relayed.Load()
		err := pause(ctx, part)
		return float64(relayed.Load()-had) / time.Since(start).Seconds(), err
	}
	if err := pause(ctx, part/10); err != nil {
		return 0, nil, err
	}
	if before, err = rate(); err != nil {
		return 0, nil, err
	}
	tx, err := o.alone.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, tx.Rollback(context.WithoutCancel(ctx))) }()
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM hand_order`).Scan(nil); err != nil {
		return 0, nil, err
	}
	for range snapshotParts {
		one, err := rate()
		if err != nil {
			return 0, nil, err
		}
		during = append(during, one)
	}
	return before, during, nil
}
