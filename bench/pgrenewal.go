package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/stats"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/postgres"
)

const pgRenewalMethod = "Two sessions: one holds 50,000 leases, one holds none. Rows are the server's own counts (pg_stat_user_tables, read after the counting connections were closed), *on the page* those that needed no " +
	"entry in an index (HOT), the log's growth the difference of pg_current_wal_insert_lsn(). Then the two sessions renew in turns of 20."

// pgRenewalsCounted is enough for the old versions of the row to fill its page many times.
const pgRenewalsCounted = 2000

// pgRenewalSide is a server with two sessions, which it opens anew through another store for each part.
type pgRenewalSide struct {
	*pgSide
	many, empty *client
	leases      int
}

func runPGRenewal(ctx context.Context, p *plan, r *report.Report) (err error) {
	r.Method = pgRenewalMethod
	pg, err := startPG(ctx, r, nil)
	if err != nil {
		return err
	}
	s := &pgRenewalSide{pgSide: pg, leases: p.pick(50_000, 512)}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	if err := s.open(ctx); err != nil {
		return err
	}
	times := p.pick(pgRenewalsCounted, 100)
	t := report.Table{Title: "What one renewal writes:", Label: "leases held", Columns: []string{"rows of sessions", "on the page, per cent", "rows of leases", "rows of other tables", "bytes of log"}}
	for _, side := range []struct {
		label  string
		client *client
		held   bool
	}{{"0", s.empty, false}, {report.Format(float64(s.leases)), s.many, true}} {
		counted, err := s.count(ctx, side.client, times)
		if err != nil {
			return err
		}
		t.Rows = append(t.Rows, report.Row{Label: side.label, Cells: []report.Cell{report.Number(counted.sessions), report.Number(counted.hot), report.Number(counted.leases), report.Number(counted.others), report.Number(counted.bytes)}})
		if side.held {
			r.Targets = append(r.Targets,
				report.Target{What: "rows that a renewal of " + side.label + " held leases writes", Must: "=", Limit: 1, Got: counted.sessions + counted.leases + counted.others},
				report.Target{What: "of these, on the page (HOT)", Must: ">=", Limit: 99, Unit: " %", Got: counted.hot})
		}
	}
	r.Tables = append(r.Tables, t)
	return s.compare(ctx, p, r)
}

func (s *pgRenewalSide) open(ctx context.Context) error {
	store, err := s.store(ctx, s.server.URL(pgDatabase), postgres.Options{})
	if err != nil {
		return err
	}
	if s.empty, err = newClient(ctx, store, lease.MaxTTL); err != nil {
		return err
	}
	if s.many, err = newClient(ctx, store, lease.MaxTTL); err != nil {
		return err
	}
	for n := 0; n < s.leases; n += lease.MaxNames {
		var names []string
		for i := n; i < min(n+lease.MaxNames, s.leases); i++ {
			names = append(names, fmt.Sprintf("held/%06d", i))
		}
		if _, _, err := s.many.acquire(ctx, names...); err != nil {
			return err
		}
	}
	return nil
}

// renewalCount is per renewal, but for hot, which is per cent.
type renewalCount struct{ sessions, hot, leases, others, bytes float64 }

// count renews through a store of its own, whose connections are then closed, so that the server's counts are complete.
func (s *pgRenewalSide) count(ctx context.Context, of *client, times int) (c renewalCount, err error) {
	const rows = `SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::float8 FROM pg_stat_user_tables WHERE schemaname = 'tenure'`
	const session, others = rows + ` AND relname = 'session'`, rows + ` AND relname NOT IN ('session', 'lease')`
	queries := []string{session, `SELECT n_tup_hot_upd::float8 FROM pg_stat_user_tables WHERE schemaname = 'tenure' AND relname = 'session'`,
		rows + ` AND relname = 'lease'`, others, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8`}
	read := func() (figures [5]float64, err error) {
		if _, err := s.admin.Exec(ctx, `SELECT pg_stat_clear_snapshot()`); err != nil {
			return figures, err
		}
		for i, sql := range queries {
			if figures[i], err = s.number(ctx, sql); err != nil {
				return figures, err
			}
		}
		return figures, nil
	}
	work := func() error {
		store, err := postgres.Open(ctx, s.server.URL(pgDatabase), postgres.Options{})
		if err != nil {
			return err
		}
		err = renewTimes(ctx, &client{store: store, session: of.session}, times)
		return errors.Join(err, store.Shutdown(ctx), s.quiet(ctx))
	}
	if err := s.quiet(ctx); err != nil {
		return c, err
	}
	before, err := read()
	if err != nil {
		return c, err
	}
	if err := work(); err != nil {
		return c, err
	}
	after, err := read()
	if err != nil {
		return c, err
	}
	var each [5]float64
	for i := range each {
		each[i] = (after[i] - before[i]) / float64(times)
	}
	if each[0] > 0 {
		c.hot = 100 * each[1] / each[0]
	}
	c.sessions, c.leases, c.others, c.bytes = each[0], each[2], each[3], each[4]
	return c, nil
}

// quiet waits until the connections of stores that were shut down are gone, those of s.store too: a connection tells its counts when it ends.
func (s *pgRenewalSide) quiet(ctx context.Context) error {
	for _, store := range s.stores {
		if err := store.Shutdown(ctx); err != nil {
			return err
		}
	}
	s.stores = nil
	for _, pool := range s.pools {
		if pool != s.admin {
			pool.Reset()
		}
	}
	for range 1000 {
		left, err := s.number(ctx, `SELECT count(*)::float8 FROM pg_stat_activity WHERE backend_type = 'client backend' AND query LIKE '%tenure.%' AND pid <> pg_backend_pid()`)
		if err != nil || left == 0 {
			return err
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("connections of a store that was shut down stay open")
}

// compare times the renewals of both sessions in turns.
func (s *pgRenewalSide) compare(ctx context.Context, p *plan, r *report.Report) error {
	store, err := s.store(ctx, s.server.URL(pgDatabase), postgres.Options{})
	if err != nil {
		return err
	}
	sides := []*client{{store: store, session: s.empty.session}, {store: store, session: s.many.session}}
	var p50 [2][]float64
	err = p.eachRound(ctx, func(int) error {
		var took [2][]float64
		for end := time.Now().Add(p.cell); time.Now().Before(end); {
			for i, c := range sides {
				for range renewalsInTurn {
					start := time.Now()
					if err := c.renew(ctx); err != nil {
						return err
					}
					took[i] = append(took[i], micros(time.Since(start)))
				}
			}
		}
		for i := range took {
			p50[i] = append(p50[i], stats.Percentile(took[i], 50))
		}
		return nil
	})
	if err != nil {
		return err
	}
	ratios, label := stats.Ratios(p50[1], p50[0]), report.Format(float64(s.leases))
	r.Tables = append(r.Tables, report.Table{Title: "How long one renewal takes, p50:", Label: "leases held", Columns: []string{"us", "ratio"}, Rows: []report.Row{
		{Label: "0", Cells: []report.Cell{report.Rounds(p50[0]), report.Number(1)}},
		{Label: label, Cells: []report.Cell{report.Rounds(p50[1]), report.Rounds(ratios)}},
	}})
	r.Targets = append(r.Targets, report.AtMost("time of a renewal with "+label+" held leases to one with none", 1.25, "x", ratios))
	return nil
}
