package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/tenure-go/tenure/bench/report"
)

// benchmark is one question. run fills in the report's method, tables, targets and notes.
type benchmark struct {
	name, title string
	run         func(ctx context.Context, p *plan, r *report.Report) error
}

// benchmarks is the list, in the order in which they run and stand on the page.
func benchmarks() []benchmark {
	return []benchmark{
		{"commit", "Group commit against one transaction per operation", runCommit},
		{"fenced", "Fenced against unfenced transactions", runFenced},
		{"sqlite-protect", "Writes to protected and to unprotected tables", runSQLiteProtect},
		{"processes", "Renewals beside busy processes on one file", runProcesses},
		{"renewal", "Renewal of a session that holds 50,000 leases", runRenewal},
		{"pg-cycle", "PostgreSQL: acquire and release against a hand-written lease", runPGCycle},
		{"pg-contended", "PostgreSQL: one name that everybody wants", runPGContended},
		{"pg-losing", "PostgreSQL: attempts that lose", runPGLosing},
		{"pg-renewal", "PostgreSQL: renewal of a session that holds 50,000 leases", runPGRenewal},
		{"pg-fenced", "PostgreSQL: fenced against unfenced writes", runPGFenced},
		{"pg-protect", "PostgreSQL: writes to protected and to unprotected tables", runPGProtect},
		{"pg-expiry", "PostgreSQL: 100,000 leases that expire within a second", runPGExpiry},
		{"pg-slow", "PostgreSQL: a disk that is 2 ms slower", runPGSlow},
		{"pg-profile", "PostgreSQL: where the time of a cycle goes", runPGProfile},
		{"sqlite-operations", "Operations on the embedded store", runSQLiteOps},
		{"pg-operations", "PostgreSQL: operations against a job queue", runPGOps},
		{"sqlite-holds", "Holds on the embedded store", runSQLiteHolds},
		{"pg-holds", "PostgreSQL: holds against a pair of updates", runPGHolds},
		{"sqlite-outbox", "An outbox on the embedded store", runSQLiteOutbox},
		{"pg-outbox", "PostgreSQL: an outbox against a table written by hand, and a subscriber", runPGOutbox},
		{"pg-outbox-profile", "PostgreSQL: where the time of an outbox goes", runPGOutboxProfile},
		{"pg-snapshot", "PostgreSQL: an outbox beside an old snapshot", runPGSnapshot},
		{"short", "A whole short process: tenure run", runShort},
		{"waiting", "Waiting within a budget", runWaiting},
	}
}

// plan says how much to do, and where.
type plan struct {
	settings report.Settings
	cell     time.Duration // one measurement
	folder   string        // for database files
	tenure   string        // binary, or empty
	progress io.Writer
}

func newPlan(o options, folder string, progress io.Writer) *plan {
	s := report.Settings{Rounds: defaultRounds, Seconds: defaultSeconds, Quick: o.quick}
	if o.quick {
		s.Rounds, s.Seconds = quickRounds, quickSeconds
	}
	if o.rounds > 0 {
		s.Rounds = o.rounds
	}
	if o.seconds > 0 {
		s.Seconds = o.seconds
	}
	return &plan{settings: s, cell: time.Duration(s.Seconds * float64(time.Second)), folder: folder, tenure: o.tenure, progress: progress}
}

func (p *plan) path(name string) string { return filepath.Join(p.folder, name) }

// pick is full, or less in a quick run.
func (p *plan) pick(full, quick int) int {
	if p.settings.Quick {
		return quick
	}
	return full
}

// eachRound calls one for every round and says on the terminal how far it is.
func (p *plan) eachRound(ctx context.Context, one func(round int) error) error {
	for round := range p.settings.Rounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		fmt.Fprintf(p.progress, "  round %d of %d\n", round+1, p.settings.Rounds)
		if err := one(round); err != nil {
			return err
		}
	}
	return nil
}

// pause waits for d, or returns ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
