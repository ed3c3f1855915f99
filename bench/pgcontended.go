package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/bench/handwritten"
	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/stats"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/postgres"
)

const pgContendedMethod = "All goroutines want one name; each acquires it, releases it at once, and wants it again. Counted are the times that it changed hands. A refused goroutine asks again after a random " +
	"pause of up to 2 ms, the same on every side but two: *advisory lock, waiting* is queued by the server, and *lease.Session, waiting* is what programs use, whose waiters poll ever less often, 20 to 250 ms apart, " +
	"so that they cost the database little. The goroutines of *store* and of *lease.Session* are spread over four sessions. *Upsert* is a row that all write to, without any lease. " +
	"Pools are as in the cycle benchmark; each measurement is half as long as there."

// The subjects of the contended benchmark.
const (
	contendedUpsert   = "upsert of one row"
	contendedAdvisory = "advisory lock, waiting"
	contendedHand     = "hand-written lease"
	contendedStore    = "store"
	contendedSession  = "lease.Session, waiting"
)

const (
	contendedName     = "contended/one"
	contendedSessions = 4
	contendedPause    = 2 * time.Millisecond
)

// errOver ends a goroutine that waits when the measurement is over.
var errOver = errors.New("the measurement is over")

type contendedSide struct {
	*pgSide
	pools    map[int]*pgxpool.Pool
	clients  [contendedSessions]*client
	sessions [contendedSessions]*lease.Session
}

func runPGContended(ctx context.Context, p *plan, r *report.Report) (err error) {
	r.Method = pgContendedMethod
	pg, err := startPG(ctx, r, nil)
	if err != nil {
		return err
	}
	c := &contendedSide{pgSide: pg, pools: map[int]*pgxpool.Pool{}}
	defer func() { err = errors.Join(err, c.close(context.WithoutCancel(ctx))) }()
	if err := c.open(ctx); err != nil {
		return err
	}
	goroutines := []int{1, 8, 64, 256, 1024}
	if p.settings.Quick {
		goroutines = []int{1, 8}
	}
	found := results{}
	err = p.eachRound(ctx, func(int) error {
		for _, g := range goroutines {
			for _, s := range c.subjects(g) {
				got, err := c.measure(ctx, s, g, p.cell/2)
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
	all := []string{contendedUpsert, contendedAdvisory, contendedHand, contendedStore, contendedSession}
	r.AddTable("How often the name changed hands, per second:", goroutines, all, func(name string, g int) []float64 { return found.of(name, g).rates })
	r.AddTable("Ratio to the hand-written lease:", goroutines, []string{contendedStore, contendedSession, contendedAdvisory, contendedUpsert}, func(name string, g int) []float64 {
		return stats.Ratios(found.of(name, g).rates, found.of(contendedHand, g).rates)
	})
	r.AddTable("From wanting it to having it, p99 in milliseconds:", goroutines, all, func(name string, g int) []float64 { return inMillis(found.of(name, g).acquireP99) })
	r.Notes = append(r.Notes,
		"Where *store* changes hands more rarely than the hand-written lease, losers are in each other's way: one that meets the winner's uncommitted row waits for it, and has the row locked for a moment when the winner wants to release it, "+
			"which then takes the longer way. lease.Session asks more rarely, and is quicker.")
	return nil
}

func (c *contendedSide) open(ctx context.Context) (err error) {
	url := c.server.URL(pgDatabase)
	for _, size := range []int{1, 8, maxPool} {
		if c.pools[size], err = c.pool(ctx, url, size); err != nil {
			return err
		}
	}
	store, err := c.store(ctx, url, postgres.Options{})
	if err != nil {
		return err
	}
	for i := range c.clients {
		if c.clients[i], err = newClient(ctx, store, lease.MaxTTL); err != nil {
			return err
		}
		if c.sessions[i], err = lease.Start(ctx, store, lease.Options{Owner: "bench"}); err != nil {
			return err
		}
		c.closings = append(c.closings, c.sessions[i].Close)
	}
	return handwritten.Fill(ctx, c.admin, []string{contendedName})
}

// measure drives a subject whose goroutines wait, and ends their waiting with the measurement.
func (c *contendedSide) measure(ctx context.Context, s subject, goroutines int, d time.Duration) (sample, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	s.over = cancel
	cycle := s.cycle
	s.cycle = func(_ context.Context, g, n int) (time.Duration, error) {
		took, err := cycle(waiting, g, n)
		if err != nil && waiting.Err() != nil && ctx.Err() == nil {
			err = errOver
		}
		return took, err
	}
	return drive(ctx, s, goroutines, d)
}

func (c *contendedSide) subjects(goroutines int) []subject {
	pool := c.pools[min(goroutines, maxPool)]
	owners := make([]fence.ID, goroutines)
	for i := range owners {
		owners[i] = lease.NewID()
	}
	return []subject{
		{name: contendedUpsert, cycle: timed(func(ctx context.Context, _, _ int) error {
			return handwritten.Upsert(ctx, pool, contendedName)
		})},
		{name: contendedAdvisory, cycle: func(ctx context.Context, _, _ int) (time.Duration, error) {
			start := time.Now()
			unlock, err := handwritten.LockWaiting(ctx, pool, contendedName)
			took := time.Since(start)
			if err != nil {
				return took, err
			}
			return took, unlock()
		}},
		{name: contendedHand, cycle: func(ctx context.Context, g, _ int) (time.Duration, error) {
			var token int64
			took, err := until(ctx, handwritten.ErrHeld, func(whole context.Context) (err error) {
				token, err = handwritten.Acquire(whole, pool, contendedName, owners[g])
				return err
			})
			if err != nil {
				return took, err
			}
			return took, handwritten.Release(context.WithoutCancel(ctx), pool, contendedName, owners[g], token)
		}},
		{name: contendedStore, cycle: func(ctx context.Context, g, _ int) (time.Duration, error) {
			of := c.clients[g%contendedSessions]
			var id fence.ID
			took, err := until(ctx, lease.ErrHeld, func(whole context.Context) (err error) {
				id, _, err = of.acquire(whole, contendedName)
				return err
			})
			if err != nil {
				return took, err
			}
			return took, of.release(context.WithoutCancel(ctx), id, contendedName)
		}},
		{name: contendedSession, cycle: func(ctx context.Context, g, _ int) (time.Duration, error) {
			start := time.Now()
			l, err := c.sessions[g%contendedSessions].Acquire(ctx, lease.Want{Names: []string{contendedName}})
			took := time.Since(start)
			if err != nil {
				return took, err
			}
			return took, l.Release(context.WithoutCancel(ctx))
		}},
	}
}

// until tries, with a random pause after each refusal, until it is not refused or ctx has ended. A try itself is not cut short: what it got would be lost.
func until(ctx context.Context, refused error, try func(whole context.Context) error) (time.Duration, error) {
	start := time.Now()
	for {
		err := try(context.WithoutCancel(ctx))
		if err == nil || !errors.Is(err, refused) {
			return time.Since(start), err
		}
		if err := pause(ctx, rand.N(contendedPause)); err != nil {
			return time.Since(start), fmt.Errorf("%w: %w", errOver, err)
		}
	}
}
