package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/stats"
	"github.com/tenure-go/tenure/bench/twin"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/sqlite"
)

const renewalMethod = "Two sessions in one file: one holds 50,000 leases, one holds none. Rows are counted by triggers on the authority's tables, which stand there for this part alone; " +
	"the log's growth is its file size over 100 renewals after it was emptied. Then, without the triggers, the two sessions renew in turns of 20."

const (
	renewalsCounted = 100 // few enough that the log is not checkpointed meanwhile
	renewalsInTurn  = 20
	walHeader       = 32
)

// renewalSide is a file with two sessions.
type renewalSide struct {
	path        string
	store       *sqlite.Store
	db          *sql.DB // a connection of the benchmark's own, for counting
	many, empty *client
	leases      int
}

func runRenewal(ctx context.Context, p *plan, r *report.Report) (err error) {
	r.Method = renewalMethod
	s := &renewalSide{path: p.path("renewal.db"), leases: p.pick(50_000, 1_000)}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	if err := s.open(ctx); err != nil {
		return err
	}
	rows := report.Table{Title: "What one renewal writes:", Label: "leases held", Columns: []string{"rows of sessions", "rows of leases", "rows of the authority (its clock)", "rows of other tables", "bytes of log"}}
	for _, side := range []struct {
		label  string
		client *client
		held   bool
	}{{"0", s.empty, false}, {report.Format(float64(s.leases)), s.many, true}} {
		written, err := s.countRows(ctx, func(ctx context.Context) error { return renewTimes(ctx, side.client, renewalsCounted) })
		if err != nil {
			return err
		}
		bytes, err := s.logBytes(ctx, side.client)
		if err != nil {
			return err
		}
		rows.Rows = append(rows.Rows, report.Row{Label: side.label, Cells: []report.Cell{
			report.Number(written["tenure_session"]), report.Number(written["tenure_lease"]), report.Number(written["tenure_authority"]),
			report.Number(written["others"]), report.Number(bytes),
		}})
		if side.held {
			r.Targets = append(r.Targets,
				report.Target{What: "rows of sessions and leases that a renewal of " + side.label + " held leases writes", Must: "=", Limit: 1,
					Got: written["tenure_session"] + written["tenure_lease"]})
		}
	}
	r.Tables = append(r.Tables, rows)
	return s.compare(ctx, p, r)
}

func (s *renewalSide) open(ctx context.Context) (err error) {
	if s.store, err = sqlite.Open(ctx, sqlite.Config{Path: s.path}); err != nil {
		return err
	}
	if s.empty, err = newClient(ctx, s.store, lease.MaxTTL); err != nil {
		return err
	}
	if s.many, err = newClient(ctx, s.store, lease.MaxTTL); err != nil {
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
	if s.db, err = sql.Open("sqlite", twin.DSN(s.path)); err != nil {
		return err
	}
	s.db.SetMaxOpenConns(1)
	return nil
}

func (s *renewalSide) close(ctx context.Context) error {
	var err error
	if s.db != nil {
		err = s.db.Close()
	}
	if s.store != nil {
		err = errors.Join(err, s.store.Shutdown(ctx))
	}
	return err
}

func renewTimes(ctx context.Context, c *client, n int) error {
	for range n {
		if err := c.renew(ctx); err != nil {
			return err
		}
	}
	return nil
}

// countRows counts, by triggers on every table of the authority, the rows that one of the renewals in work writes.
func (s *renewalSide) countRows(ctx context.Context, work func(context.Context) error) (_ map[string]float64, err error) {
	tables, err := s.tables(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.db.ExecContext(ctx, `CREATE TABLE bench_written (source TEXT PRIMARY KEY, n INTEGER NOT NULL)`); err != nil {
		return nil, err
	}
	drop := []string{`DROP TABLE bench_written`}
	defer func() {
		for i := len(drop) - 1; i >= 0; i-- {
			_, dropErr := s.db.ExecContext(ctx, drop[i])
			err = errors.Join(err, dropErr)
		}
	}()
	for _, table := range tables {
		for _, event := range []string{"INSERT", "UPDATE", "DELETE"} {
			trigger := "bench_" + strings.ToLower(event) + "_" + table
			text := fmt.Sprintf(`CREATE TRIGGER %s AFTER %s ON %s BEGIN
				INSERT INTO bench_written VALUES ('%s', 1) ON CONFLICT (source) DO UPDATE SET n = n + 1; END`, trigger, event, table, table)
			if _, err := s.db.ExecContext(ctx, text); err != nil {
				return nil, err
			}
			drop = append(drop, "DROP TRIGGER "+trigger)
		}
	}
	if err := work(ctx); err != nil {
		return nil, err
	}
	return s.written(ctx)
}

func (s *renewalSide) tables(ctx context.Context) ([]string, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'tenure\_%' ESCAPE '\' ORDER BY name`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var tables []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		tables = append(tables, name)
	}
	return tables, rows.Err()
}

// written is how many rows one renewal wrote, by table; those without a name of their own are "others".
func (s *renewalSide) written(ctx context.Context) (map[string]float64, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT source, n FROM bench_written`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	written := map[string]float64{}
	for rows.Next() {
		var table string
		var n float64
		if err := rows.Scan(&table, &n); err != nil {
			return nil, err
		}
		switch table {
		case "tenure_session", "tenure_lease", "tenure_authority":
		default:
			table = "others"
		}
		written[table] += n / renewalsCounted
	}
	return written, rows.Err()
}

// logBytes is how much one renewal adds to the write-ahead log.
func (s *renewalSide) logBytes(ctx context.Context, c *client) (float64, error) {
	var busy, frames, moved int
	if err := s.db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &frames, &moved); err != nil {
		return 0, err
	}
	if busy != 0 {
		return 0, errors.New("the log could not be emptied")
	}
	if err := renewTimes(ctx, c, renewalsCounted); err != nil {
		return 0, err
	}
	info, err := os.Stat(s.path + "-wal") // never opened: that would drop SQLite's locks on close
	if err != nil {
		return 0, err
	}
	return float64(info.Size()-walHeader) / renewalsCounted, nil
}

// compare times the renewals of both sessions in turns.
func (s *renewalSide) compare(ctx context.Context, p *plan, r *report.Report) error {
	var many, empty []float64
	err := p.eachRound(ctx, func(int) error {
		var took [2][]float64
		for end := time.Now().Add(p.cell); time.Now().Before(end); {
			for i, c := range []*client{s.empty, s.many} {
				for range renewalsInTurn {
					start := time.Now()
					if err := c.renew(ctx); err != nil {
						return err
					}
					took[i] = append(took[i], micros(time.Since(start)))
				}
			}
		}
		empty = append(empty, stats.Percentile(took[0], 50))
		many = append(many, stats.Percentile(took[1], 50))
		return nil
	})
	if err != nil {
		return err
	}
	ratios := stats.Ratios(many, empty)
	label := report.Format(float64(s.leases))
	r.Tables = append(r.Tables, report.Table{Title: "How long one renewal takes, p50:", Label: "leases held", Columns: []string{"us", "ratio"}, Rows: []report.Row{
		{Label: "0", Cells: []report.Cell{report.Rounds(empty), report.Number(1)}},
		{Label: label, Cells: []report.Cell{report.Rounds(many), report.Rounds(ratios)}},
	}})
	r.Targets = append(r.Targets, report.AtMost("time of a renewal with "+label+" held leases to one with none", 1.25, "x", ratios))
	return nil
}
