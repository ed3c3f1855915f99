package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/bench/handwritten"
	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/postgres"
)

const pgLosingMethod = "One session holds 7 names; another asks for them 7,000 times in all, from one goroutine and from 64, whose attempts are coalesced, and is refused each time. " +
	"Beside it the hand-written statement, whose upsert locks the row that it then leaves alone. What the server's log has grown by is the difference of pg_current_wal_insert_lsn(), transaction ids the difference of " +
	"the next one to be given out. The server runs without autovacuum and with wal_level = minimal here, so that it writes nothing of its own; *nobody* is the same time without any attempt."

const (
	losingAttempts = 7000
	losingNames    = 7
)

// losingSide is two sessions, one of which holds what the other wants.
type losingSide struct {
	*pgSide
	names []string
	loser *client
}

// losingSettings keep the server from writing by itself.
func losingSettings() map[string]string {
	return map[string]string{"autovacuum": "off", "wal_level": "minimal", "max_wal_senders": "0"}
}

func runPGLosing(ctx context.Context, p *plan, r *report.Report) (err error) {
	r.Method = pgLosingMethod
	pg, err := startPG(ctx, r, losingSettings())
	if err != nil {
		return err
	}
	s := &losingSide{pgSide: pg}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	if err := s.open(ctx); err != nil {
		return err
	}
	attempts := p.pick(losingAttempts, 70)
	t := report.Table{Title: fmt.Sprintf("%s attempts that were refused:", report.Format(float64(attempts))), Label: "who asked", Columns: []string{"bytes of log", "transaction ids", "attempts per second"}}
	var took time.Duration
	for _, side := range []struct {
		name    string
		loses   func(ctx context.Context, goroutines, attempts int) error
		workers int
		must    bool
	}{
		{"hand-written lease, 1 goroutine", s.handLoses, 1, false},
		{"store, 1 goroutine", s.storeLoses, 1, true},
		{"store, 64 goroutines", s.storeLoses, 64, true},
		{"nobody", func(ctx context.Context, _, _ int) error { return pause(ctx, took) }, 1, false},
	} {
		row, elapsed, err := s.count(ctx, side.name, func(ctx context.Context) error { return side.loses(ctx, side.workers, attempts) }, attempts)
		if err != nil {
			return fmt.Errorf("%s: %w", side.name, err)
		}
		took = elapsed
		t.Rows = append(t.Rows, row)
		if side.must {
			r.Targets = append(r.Targets, report.Target{What: "bytes of log that refused attempts wrote: " + side.name, Must: "=", Limit: 0, Got: *row.Cells[0].Median},
				report.Target{What: "transaction ids that refused attempts took: " + side.name, Must: "=", Limit: 0, Got: *row.Cells[1].Median})
		}
	}
	t.Rows[len(t.Rows)-1].Cells[2] = report.Cell{}
	r.Tables = append(r.Tables, t)
	return nil
}

func (s *losingSide) open(ctx context.Context) error {
	store, err := s.store(ctx, s.server.URL(pgDatabase), postgres.Options{})
	if err != nil {
		return err
	}
	for n := range losingNames {
		s.names = append(s.names, fmt.Sprintf("lost/%d", n))
	}
	winner, err := newClient(ctx, store, lease.MaxTTL)
	if err != nil {
		return err
	}
	for _, name := range s.names {
		if _, _, err := winner.acquire(ctx, name); err != nil {
			return err
		}
	}
	if s.loser, err = newClient(ctx, store, lease.MaxTTL); err != nil {
		return err
	}
	if err := handwritten.Fill(ctx, s.admin, s.names); err != nil {
		return err
	}
	if _, err := s.admin.Exec(ctx, `UPDATE hand_lease SET expires_at = 'infinity'`); err != nil {
		return err
	}
	// What a first attempt finds out and keeps, and the hints that a first reader leaves, are no attempt's.
	for range 20 {
		err := errors.Join(s.storeLoses(ctx, 8, 2*losingNames), s.handLoses(ctx, 1, losingNames))
		if err != nil {
			return err
		}
	}
	_, err = s.admin.Exec(ctx, `VACUUM`)
	if err != nil {
		return err
	}
	_, err = s.admin.Exec(ctx, `CHECKPOINT`)
	return err
}

// count is what the server wrote during work. The figures are read without a transaction id of their own.
func (s *losingSide) count(ctx context.Context, name string, work func(context.Context) error, attempts int) (report.Row, time.Duration, error) {
	const bytes = `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8`
	const ids = `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::float8`
	var before, after [2]float64
	read := func(into *[2]float64) (err error) {
		for i, sql := range []string{bytes, ids} {
			if into[i], err = s.number(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	}
	if err := read(&before); err != nil {
		return report.Row{}, 0, err
	}
	start := time.Now()
	if err := work(ctx); err != nil {
		return report.Row{}, 0, err
	}
	took := time.Since(start)
	if err := read(&after); err != nil {
		return report.Row{}, 0, err
	}
	return report.Row{Label: name, Cells: []report.Cell{
		report.Number(after[0] - before[0]), report.Number(after[1] - before[1]), report.Number(float64(attempts) / took.Seconds())}}, took, nil
}

// share runs the attempts on so many goroutines.
func share(goroutines, attempts int, one func(n int) error) error {
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for n := g; n < attempts && errs[g] == nil; n += goroutines {
				errs[g] = one(n)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *losingSide) storeLoses(ctx context.Context, goroutines, attempts int) error {
	return share(goroutines, attempts, func(n int) error {
		_, _, err := s.loser.acquire(ctx, s.names[n%len(s.names)])
		return wasRefused(err, lease.ErrHeld)
	})
}

func (s *losingSide) handLoses(ctx context.Context, goroutines, attempts int) error {
	owner := lease.NewID()
	return share(goroutines, attempts, func(n int) error {
		_, err := handwritten.Acquire(ctx, s.admin, s.names[n%len(s.names)], owner)
		return wasRefused(err, handwritten.ErrHeld)
	})
}

// wasRefused is nil for the refusal that is wanted.
func wasRefused(err, want error) error {
	if err == nil {
		return errors.New("an attempt was granted that was to be refused")
	}
	if errors.Is(err, want) {
		return nil
	}
	return err
}
