package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/pprof"
	"strings"

	"github.com/tenure-go/tenure/bench/report"
)

const pgProfileMethod = "Where the time goes: the cycle benchmark's store and its hand-written twin at 64 and 256 goroutines, on a server with pg_stat_statements, which counts what runs inside of functions too and makes everything slower by some per cent. " +
	"Times of outer statements hold those of the inner ones. Below, the load's own processor time by function, of the store alone, as pprof has it."

// How much of each list is shown.
const (
	profileStatements = 9
	profileFunctions  = 16
)

func runPGProfile(ctx context.Context, p *plan, r *report.Report) (err error) {
	r.Method = pgProfileMethod
	side, err := openPGCycle(ctx, p, r, map[string]string{"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "all"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, side.close(context.WithoutCancel(ctx))) }()
	if _, err := side.admin.Exec(ctx, `CREATE EXTENSION pg_stat_statements`); err != nil {
		return err
	}
	r.Settings.Rounds = 1
	for _, g := range []int{maxPool, 4 * maxPool} {
		for _, s := range only(side.subjects(g), []string{pgHand, pgStore}) {
			if err := side.profile(ctx, p, r, s, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// profile drives a subject and adds what was seen of it.
func (c *pgCycleSide) profile(ctx context.Context, p *plan, r *report.Report, s subject, goroutines int) (err error) {
	if _, err := c.admin.Exec(ctx, `SELECT pg_stat_statements_reset()`); err != nil {
		return err
	}
	path := p.path("cpu.pprof")
	stop, err := startProfile(path)
	if err != nil {
		return fmt.Errorf("%w; this benchmark makes a profile of its own, run it without --cpuprofile", err)
	}
	s.server = c.processTime
	got, err := drive(ctx, s, goroutines, 4*p.cell)
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	t, err := c.statements(ctx)
	if err != nil {
		return err
	}
	t.Title = fmt.Sprintf("%s, goroutines: %d; %s cycles per second, processor time per cycle %s us of the server and %s us of the load. Its statements:",
		s.name, goroutines, report.Format(got.rate), report.Format(got.server), report.Format(got.cpu))
	r.Tables = append(r.Tables, t)
	if s.name != pgStore {
		return nil
	}
	functions, err := topFunctions(ctx, path)
	if err != nil {
		return err
	}
	functions.Title = fmt.Sprintf("%s, goroutines: %d; the load's functions:", s.name, goroutines)
	r.Tables = append(r.Tables, functions)
	return nil
}

// statements are those that took longest.
func (s *pgSide) statements(ctx context.Context) (report.Table, error) {
	t := report.Table{Label: "statement", Columns: []string{"calls", "us each", "rows each", "bytes of log each", "ms in all"}}
	rows, err := s.admin.Query(ctx, `SELECT calls::float8, total_exec_time * 1000 / calls, rows::float8 / calls, wal_bytes::float8 / calls, total_exec_time,
		regexp_replace(query, '\s+', ' ', 'g') FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%' ORDER BY total_exec_time DESC LIMIT $1`, profileStatements)
	if err != nil {
		return t, err
	}
	defer rows.Close()
	for rows.Next() {
		var calls, each, n, wal, total float64
		var query string
		if err := rows.Scan(&calls, &each, &n, &wal, &total, &query); err != nil {
			return t, err
		}
		t.Rows = append(t.Rows, report.Row{Label: code(query), Cells: []report.Cell{report.Number(calls), report.Number(each), report.Number(n), report.Number(wal), report.Number(total)}})
	}
	return t, rows.Err()
}

// code is the beginning of a text, fit for a cell of a table.
func code(text string) string {
	const most = 90
	text = strings.NewReplacer("|", "/", "`", "'").Replace(text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " ..."
	}
	return "`" + text + "`"
}

// topFunctions asks pprof, which comes with Go.
func topFunctions(ctx context.Context, path string) (report.Table, error) {
	t := report.Table{Label: "function", Columns: []string{"itself", "with what it calls"}}
	binary, err := os.Executable()
	if err != nil {
		return t, err
	}
	out, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-cum", fmt.Sprint("-nodecount=", 4*profileFunctions), binary, path).Output()
	if err != nil {
		return t, fmt.Errorf("go tool pprof: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		// flat flat% sum% cum cum% name
		fields := strings.Fields(line)
		if len(fields) < 6 || !strings.HasSuffix(fields[4], "%") || len(t.Rows) == profileFunctions || strings.HasPrefix(fields[5], "main.") || strings.HasPrefix(fields[5], "sync.(*WaitGroup)") {
			continue
		}
		t.Rows = append(t.Rows, report.Row{Label: code(strings.TrimPrefix(fields[5], "github.com/")), Cells: []report.Cell{report.Text(fields[1]), report.Text(fields[4])}})
	}
	return t, nil
}

func startProfile(path string) (stop func() error, err error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}
