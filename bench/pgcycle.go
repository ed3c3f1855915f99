package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/bench/handwritten"
	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/stats"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/postgres"
)

const pgCycleMethod = "Each goroutine acquires and releases names of its own, one after another, out of 55,000 that exist already and whose last holder was the same session. " +
	"*Hand-written* is INSERT ... ON CONFLICT DO UPDATE ... WHERE expired and an UPDATE, one durable statement each, on a pgx pool of as many connections as goroutines, at most 64, all open. " +
	"*Store* is `store/postgres` through the methods of `lease.Store`, one session, on a pool of 8 of which it uses three; *lease.Session* is the same as programs use it. " +
	"Grants are durable before they are told; a plain release is told before (see `Options.SyncRelease`), and the row *releases durable too* shows what that saves. " +
	"*Advisory lock* is neither durable nor has it a token; *upsert* is the durable floor, one statement over one row. All run in one process on the machine of the server, after one another within each round."

// The subjects of the cycle benchmark.
const (
	pgUpsert       = "upsert, one statement"
	pgAdvisory     = "advisory lock and unlock"
	pgHand         = "hand-written lease"
	pgStore        = "store"
	pgSession      = "lease.Session"
	pgSync         = "store, releases durable too"
	pgOthers       = "store, names that others held last"
	pgHandNew      = "hand-written lease, new names"
	pgStoreNew     = "store, new names"
	pgHandBouncer  = "hand-written lease, PgBouncer"
	pgStoreBouncer = "store, PgBouncer"
)

// pgNames is how many names exist before.
const pgNames = 55_000

// maxPool is how many connections the hand-written lease gets at most.
const maxPool = 64

// pgCycleSide is what the subjects run on.
type pgCycleSide struct {
	*pgSide
	pools               map[int]*pgxpool.Pool
	owner               fence.ID
	direct, sync        *client    // one session
	others              [2]*client // take the same names in turn
	session             *lease.Session
	pooledHand          *pgxpool.Pool
	pooledStore         *client // the session of direct
	fresh               atomic.Int64
	ownNames, forOthers []string
	forSession          []string
}

func runPGCycle(ctx context.Context, p *plan, r *report.Report) (err error) {
	r.Method = pgCycleMethod
	goroutines := []int{1, 8, 64, 256, 1024}
	if p.settings.Quick {
		goroutines = []int{1, 64}
	}
	side, err := openPGCycle(ctx, p, r, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, side.close(context.WithoutCancel(ctx))) }()
	found := results{}
	err = p.eachRound(ctx, func(int) error {
		for _, g := range goroutines {
			if err := side.measure(ctx, p.cell, found, g, side.subjects(g)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	pgCycleTables(r, found, goroutines)
	return nil
}

// measure runs the subjects one after another, each for d, and adds what they gave.
func (c *pgCycleSide) measure(ctx context.Context, d time.Duration, found results, goroutines int, subjects []subject) error {
	for _, s := range subjects {
		runtime.GC() // the garbage of one side is not the other's to collect
		s.server = c.processTime
		got, err := drive(ctx, s, goroutines, d)
		if err != nil {
			return err
		}
		found.add(s.name, goroutines, got)
	}
	return nil
}

func openPGCycle(ctx context.Context, p *plan, r *report.Report, settings map[string]string) (_ *pgCycleSide, err error) {
	pg, err := startPG(ctx, r, settings)
	if err != nil {
		return nil, err
	}
	c := &pgCycleSide{pgSide: pg, pools: map[int]*pgxpool.Pool{}, owner: lease.NewID()}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close(context.WithoutCancel(ctx)))
		}
	}()
	for n := range p.pick(pgNames, 2048) {
		c.ownNames = append(c.ownNames, fmt.Sprintf("own/%05d", n))
		c.forOthers = append(c.forOthers, fmt.Sprintf("others/%05d", n))
		c.forSession = append(c.forSession, fmt.Sprintf("session/%05d", n))
	}
	url := c.server.URL(pgDatabase)
	for _, size := range []int{1, 8, maxPool} {
		if c.pools[size], err = c.pool(ctx, url, size); err != nil {
			return nil, err
		}
	}
	if err := handwritten.Fill(ctx, c.admin, c.ownNames); err != nil {
		return nil, err
	}
	if err := c.openStores(ctx, url); err != nil {
		return nil, err
	}
	_, err = c.admin.Exec(ctx, `ANALYSE`)
	return c, err
}

func (c *pgCycleSide) openStores(ctx context.Context, url string) error {
	store, err := c.store(ctx, url, postgres.Options{})
	if err != nil {
		return err
	}
	if c.direct, err = newClient(ctx, store, lease.MaxTTL); err != nil {
		return err
	}
	for i := range c.others {
		if c.others[i], err = newClient(ctx, store, lease.MaxTTL); err != nil {
			return err
		}
	}
	syncing, err := c.store(ctx, url, postgres.Options{SyncRelease: true})
	if err != nil {
		return err
	}
	c.sync = &client{store: syncing, session: c.direct.session}
	url, err = c.pooled(ctx)
	if err != nil {
		return err
	}
	pooled, err := c.store(ctx, url, postgres.Options{})
	if err != nil {
		return err
	}
	c.pooledStore = &client{store: pooled, session: c.direct.session}
	if c.pooledHand, err = c.pool(ctx, url, 1); err != nil {
		return err
	}
	if c.session, err = lease.Start(ctx, store, lease.Options{Owner: "bench"}); err != nil {
		return err
	}
	c.closings = append(c.closings, c.session.Close)
	if err := fillNames(ctx, c.direct, c.ownNames); err != nil {
		return err
	}
	if err := fillNames(ctx, c.others[1], c.forOthers); err != nil {
		return err
	}
	for n := 0; n < len(c.forSession); n += lease.MaxNames {
		l, err := c.session.Acquire(ctx, lease.Want{Names: c.forSession[n:min(n+lease.MaxNames, len(c.forSession))], Try: true})
		if err != nil {
			return err
		}
		if err := l.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fillNames lets the client have held each of the names.
func fillNames(ctx context.Context, c *client, names []string) error {
	for n := 0; n < len(names); n += lease.MaxNames {
		some := names[n:min(n+lease.MaxNames, len(names))]
		id, _, err := c.acquire(ctx, some...)
		if err != nil {
			return err
		}
		if err := c.release(ctx, id, some...); err != nil {
			return err
		}
	}
	return nil
}

// nth is the name of a goroutine's cycle: each goroutine has a part of the names to itself.
func nth(names []string, goroutines, g, n int) string {
	from, to := g*len(names)/goroutines, (g+1)*len(names)/goroutines
	return names[from+n%(to-from)]
}

// subjects are in the order in which they run.
func (c *pgCycleSide) subjects(goroutines int) []subject {
	pool := c.pools[min(goroutines, maxPool)]
	own := func(g, n int) string { return nth(c.ownNames, goroutines, g, n) }
	all := []subject{
		{name: pgUpsert, cycle: timed(func(ctx context.Context, g, n int) error { return handwritten.Upsert(ctx, pool, own(g, n)) })},
		{name: pgAdvisory, cycle: func(ctx context.Context, g, n int) (time.Duration, error) {
			start := time.Now()
			unlock, err := handwritten.Lock(ctx, pool, own(g, n))
			took := time.Since(start)
			if err != nil {
				return took, err
			}
			return took, unlock()
		}},
		{name: pgHand, cycle: func(ctx context.Context, g, n int) (time.Duration, error) { return c.handCycle(ctx, pool, own(g, n)) }},
		{name: pgStore, cycle: func(ctx context.Context, g, n int) (time.Duration, error) { return c.direct.cycle(ctx, own(g, n)) }},
		{name: pgSession, cycle: func(ctx context.Context, g, n int) (time.Duration, error) {
			return sessionCycle(ctx, c.session, nth(c.forSession, goroutines, g, n))
		}},
	}
	if goroutines == 1 || goroutines == maxPool || goroutines == 4*maxPool {
		all = append(all,
			subject{name: pgSync, cycle: func(ctx context.Context, g, n int) (time.Duration, error) { return c.sync.cycle(ctx, own(g, n)) }},
			subject{name: pgOthers, cycle: func(ctx context.Context, g, n int) (time.Duration, error) {
				return c.others[n%2].cycle(ctx, nth(c.forOthers, goroutines, g, n/2))
			}})
	}
	if goroutines == 1 || goroutines == maxPool {
		all = append(all,
			subject{name: pgHandNew, cycle: func(ctx context.Context, _, _ int) (time.Duration, error) { return c.handCycle(ctx, pool, c.newName()) }},
			subject{name: pgStoreNew, cycle: func(ctx context.Context, _, _ int) (time.Duration, error) { return c.direct.cycle(ctx, c.newName()) }})
	}
	if goroutines == 1 {
		all = append(all,
			subject{name: pgHandBouncer, cycle: func(ctx context.Context, g, n int) (time.Duration, error) {
				return c.handCycle(ctx, c.pooledHand, own(g, n))
			}},
			subject{name: pgStoreBouncer, cycle: func(ctx context.Context, g, n int) (time.Duration, error) { return c.pooledStore.cycle(ctx, own(g, n)) }})
	}
	return all
}

func (c *pgCycleSide) newName() string { return "new/" + strconv.FormatInt(c.fresh.Add(1), 10) }

func timed(do func(ctx context.Context, g, n int) error) func(ctx context.Context, g, n int) (time.Duration, error) {
	return func(ctx context.Context, g, n int) (time.Duration, error) {
		start := time.Now()
		err := do(ctx, g, n)
		return time.Since(start), err
	}
}

func (c *pgCycleSide) handCycle(ctx context.Context, pool *pgxpool.Pool, name string) (time.Duration, error) {
	start := time.Now()
	token, err := handwritten.Acquire(ctx, pool, name, c.owner)
	took := time.Since(start)
	if err != nil {
		return took, err
	}
	return took, handwritten.Release(ctx, pool, name, c.owner, token)
}

func sessionCycle(ctx context.Context, s *lease.Session, name string) (time.Duration, error) {
	start := time.Now()
	l, err := s.Acquire(ctx, lease.Want{Names: []string{name}, Try: true})
	took := time.Since(start)
	if err != nil {
		return took, err
	}
	return took, l.Release(ctx)
}

func pgCycleTables(r *report.Report, found results, goroutines []int) {
	all := []string{pgUpsert, pgAdvisory, pgHand, pgStore, pgSession, pgSync, pgOthers, pgHandNew, pgStoreNew, pgHandBouncer, pgStoreBouncer}
	ratio := func(name string, g int) []float64 {
		base := pgHand
		switch name {
		case pgStoreNew:
			base = pgHandNew
		case pgStoreBouncer:
			base = pgHandBouncer
		}
		return stats.Ratios(found.of(name, g).rates, found.of(base, g).rates)
	}
	r.AddTable("Ratio to the hand-written lease:", goroutines, []string{pgStore, pgSession, pgSync, pgOthers, pgStoreNew, pgStoreBouncer, pgAdvisory, pgUpsert}, ratio)
	r.Tables[len(r.Tables)-1].Chart = true
	r.AddTable("Acquire and release, cycles per second (upserts per second in the first row):", goroutines, all,
		func(name string, g int) []float64 { return found.of(name, g).rates })
	r.AddTable("Processor time of the server per cycle (per upsert in the first row), microseconds:", goroutines, all,
		func(name string, g int) []float64 { return found.of(name, g).server })
	r.AddTable("Processor time of the load per cycle, microseconds:", goroutines, all,
		func(name string, g int) []float64 { return found.of(name, g).cpu })
	r.AddTable("Acquire alone, p50 in milliseconds:", goroutines, []string{pgHand, pgStore, pgSession},
		func(name string, g int) []float64 { return inMillis(found.of(name, g).acquireP50) })
	r.AddTable("Acquire alone, p99 in milliseconds:", goroutines, []string{pgHand, pgStore, pgSession},
		func(name string, g int) []float64 { return inMillis(found.of(name, g).acquireP99) })
	r.Notes = append(r.Notes,
		"At 1 goroutine the store saves one of two flushes, 90 us here, and pays for it on the server: acquire_one and release_one take 52 and 36 us, of which their statements run for 20 and 17, and the rest is what PL/pgSQL and the executor take to begin and end them; the hand-written statements take 15 each.",
		"At 64 a cycle waits for one and a half calls of each lane: of 600 us that an acquiring call takes, 90 are the flush and 150 are the same however many names it has. A fifth of both processors is idle then. From 256 on the limit is processor time, which the tables have, and what it goes into is in the profile below. The hand-written lease gains where flushes are cheap, as here: its 64 connections share them.",
		"*Names that others held last* are taken by two sessions in turn: a row that leaves its session takes a record with it, which the other kind does not need.")
	for _, want := range []struct {
		goroutines int
		limit      float64
	}{{1, 0.95}, {64, 4}, {256, 9}} {
		if slices.Contains(goroutines, want.goroutines) {
			r.Targets = append(r.Targets, report.AtLeast(fmt.Sprintf("store to hand-written lease, goroutines: %d", want.goroutines), want.limit, "x", ratio(pgStore, want.goroutines)))
		}
	}
	r.Targets = append(r.Targets, report.AtLeast("store to hand-written lease through PgBouncer, 1 goroutine", 0.8, "x", ratio(pgStoreBouncer, 1)))
}
