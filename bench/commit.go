package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/stats"
	"github.com/tenure-go/tenure/bench/twin"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/sqlite"
)

const commitMethod = "Each goroutine acquires a name of its own and releases it, again and again; both are durable before they are answered (WAL, synchronous FULL).\n" +
	"*One transaction per operation* is a lean twin on one prepared connection behind a mutex: BEGIN IMMEDIATE, a counter row, the lease row, COMMIT; no session, no clock, no retries. " +
	"*Group commit* is `store/sqlite` through the methods of `lease.Store`, with one session and every rule of the contract; *lease.Session* is the same as programs use it, with contexts, " +
	"renewals and the account of what is in flight. *Upsert* is the floor: one statement over one row, committed by itself. All run in one process, after one another " +
	"within each round, each on a file of its own in one folder."

// wideNames is how many names a goroutine takes in turn, where that is asked for: a batch then dirties many pages.
const wideNames = 128

// The subjects of the commit benchmark.
const (
	subjectTwin     = "one transaction per operation"
	subjectStore    = "group commit"
	subjectSession  = "group commit, lease.Session"
	subjectUpsert   = "upsert, one transaction each"
	subjectWideTwin = "one transaction per operation, 128 names each"
	subjectWide     = "group commit, 128 names each"
)

// commitSide is what the subjects run on.
type commitSide struct {
	twin, wideTwin         *twin.Twin
	store, wide, forLeases *sqlite.Store
	session                *lease.Session
	client, wideClient     *client
	sessionID              fence.ID
}

func runCommit(ctx context.Context, p *plan, r *report.Report) (err error) {
	r.Method = commitMethod
	side := &commitSide{sessionID: lease.NewID()}
	defer func() { err = errors.Join(err, side.close(context.WithoutCancel(ctx))) }()
	if err := side.open(ctx, p); err != nil {
		return err
	}
	goroutines := []int{1, 8, 64, 256}
	if p.settings.Quick {
		goroutines = []int{1, 64}
	}
	names := makeNames(goroutines[len(goroutines)-1])
	found := results{}
	err = p.eachRound(ctx, func(int) error {
		for _, g := range goroutines {
			for _, s := range side.subjects(names, g) {
				runtime.GC() // the garbage of one side is not the other's to collect
				got, err := drive(ctx, s, g, p.cell)
				if err != nil {
					return err
				}
				found.add(s.name, g, got)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	commitTables(r, found, goroutines)
	return nil
}

func (c *commitSide) open(ctx context.Context, p *plan) (err error) {
	if c.twin, err = twin.Open(ctx, p.path("twin.db")); err != nil {
		return err
	}
	if c.wideTwin, err = twin.Open(ctx, p.path("wide-twin.db")); err != nil {
		return err
	}
	for path, store := range map[string]**sqlite.Store{"store.db": &c.store, "wide.db": &c.wide, "session.db": &c.forLeases} {
		if *store, err = sqlite.Open(ctx, sqlite.Config{Path: p.path(path)}); err != nil {
			return err
		}
	}
	if c.client, err = newClient(ctx, c.store, lease.MaxTTL); err != nil {
		return err
	}
	if c.wideClient, err = newClient(ctx, c.wide, lease.MaxTTL); err != nil {
		return err
	}
	c.session, err = lease.Start(ctx, c.forLeases, lease.Options{Owner: "bench"})
	return err
}

func (c *commitSide) close(ctx context.Context) error {
	var err error
	if c.session != nil {
		err = errors.Join(err, c.session.Close(ctx))
	}
	for _, store := range []*sqlite.Store{c.store, c.wide, c.forLeases} {
		if store != nil {
			err = errors.Join(err, store.Shutdown(ctx))
		}
	}
	for _, t := range []*twin.Twin{c.twin, c.wideTwin} {
		if t != nil {
			err = errors.Join(err, t.Close())
		}
	}
	return err
}

// makeNames gives each goroutine wideNames names of its own.
func makeNames(goroutines int) [][]string {
	names := make([][]string, goroutines)
	for g := range names {
		for n := range wideNames {
			names[g] = append(names[g], fmt.Sprintf("bench/%d/%d", g, n))
		}
	}
	return names
}

// subjects are in the order in which they run; the two sides of a ratio are neighbours.
func (c *commitSide) subjects(names [][]string, goroutines int) []subject {
	all := []subject{
		{name: subjectUpsert, cycle: func(_ context.Context, g, _ int) (time.Duration, error) {
			start := time.Now()
			err := c.twin.Upsert(names[g][0])
			return time.Since(start), err
		}},
		{name: subjectTwin, cycle: func(_ context.Context, g, _ int) (time.Duration, error) { return c.twinCycle(c.twin, names[g][0]) }},
		{name: subjectStore, cycle: func(ctx context.Context, g, _ int) (time.Duration, error) { return c.client.cycle(ctx, names[g][0]) }},
		{name: subjectSession, cycle: func(ctx context.Context, g, _ int) (time.Duration, error) { return c.leaseCycle(ctx, names[g][0]) }},
	}
	if goroutines == 64 {
		all = append(all,
			subject{name: subjectWideTwin, cycle: func(_ context.Context, g, n int) (time.Duration, error) {
				return c.twinCycle(c.wideTwin, names[g][n%wideNames])
			}},
			subject{name: subjectWide, cycle: func(ctx context.Context, g, n int) (time.Duration, error) {
				return c.wideClient.cycle(ctx, names[g][n%wideNames])
			}})
	}
	return all
}

func (c *commitSide) twinCycle(t *twin.Twin, name string) (time.Duration, error) {
	start := time.Now()
	id := lease.NewID()
	_, err := t.Acquire(name, id[:], c.sessionID[:])
	took := time.Since(start)
	if err != nil {
		return took, err
	}
	return took, t.Release(name, id[:])
}

func (c *commitSide) leaseCycle(ctx context.Context, name string) (time.Duration, error) {
	start := time.Now()
	l, err := c.session.Acquire(ctx, lease.Want{Names: []string{name}, Try: true})
	took := time.Since(start)
	if err != nil {
		return took, err
	}
	return took, l.Release(ctx)
}

func commitTables(r *report.Report, found results, goroutines []int) {
	all := []string{subjectUpsert, subjectTwin, subjectStore, subjectSession, subjectWideTwin, subjectWide}
	ratio := func(name string, g int) []float64 {
		base := subjectTwin
		if name == subjectWide {
			base = subjectWideTwin
		}
		return stats.Ratios(found.of(name, g).rates, found.of(base, g).rates)
	}
	r.AddTable("Acquire and release, cycles per second (upserts per second in the first row):", goroutines, all,
		func(name string, g int) []float64 { return found.of(name, g).rates })
	r.AddTable("Ratio to one transaction per operation:", goroutines, []string{subjectStore, subjectSession, subjectWide},
		func(name string, g int) []float64 { return ratio(name, g) })
	r.AddTable("Processor time per cycle (per upsert in the first row), microseconds, that of the load itself included:", goroutines, all,
		func(name string, g int) []float64 { return found.of(name, g).cpu })
	r.AddTable("Acquire alone, p50 in milliseconds:", goroutines, []string{subjectTwin, subjectStore, subjectSession},
		func(name string, g int) []float64 { return inMillis(found.of(name, g).acquireP50) })
	r.AddTable("Acquire alone, p99 in milliseconds:", goroutines, []string{subjectTwin, subjectStore, subjectSession},
		func(name string, g int) []float64 { return inMillis(found.of(name, g).acquireP99) })

	r.Notes = append(r.Notes,
		"At one goroutine there is nobody to share a commit with, and what remains is the price of the rules: each operation writes the rows of the session and of the authority beside the lease's.",
		"With 128 names each, 8,192 names are in use, and nearly every lease of a batch lies on a page of its own that goes into the log: the more names, the less a commit is shared.")
	r.Targets = append(r.Targets, report.AtLeast("group commit to one transaction per operation, 64 goroutines", 10, "x", ratio(subjectStore, 64)))
	for _, g := range goroutines {
		var operations []float64
		for _, rate := range found.of(subjectTwin, g).rates {
			operations = append(operations, 2*rate)
		}
		r.Targets = append(r.Targets, report.AtLeast(fmt.Sprintf("the twin's operations to upserts, %d goroutines: the twin is no straw man", g),
			0.7, "x", stats.Ratios(operations, found.of(subjectUpsert, g).rates)))
	}
}

func inMillis(micros []float64) []float64 {
	out := make([]float64, len(micros))
	for i, m := range micros {
		out[i] = m / 1000
	}
	return out
}
