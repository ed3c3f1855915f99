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

const pgExpiryMethod = "400 sessions hold 250 leases each. They are renewed for the last time within a second, and so expire within a second. Another session acquires and releases names of its own from 8 goroutines all the time: " +
	"*idle* before that second, *expiring* during it and for a second after, *taken over* while yet another session takes the expired names, one after another from 8 goroutines, each with the verdict over the session that had it."

const (
	expirySessions   = 400
	expiryLeases     = 250 // of each session
	expiryTTL        = 10 * time.Second
	expiryGoroutines = 8
	expiryTakes      = 4000 // names taken over
)

// The phases of the expiry benchmark.
const (
	expiryIdle   = "idle"
	expiryDuring = "expiring"
	expiryTaken  = "taken over"
)

type expirySide struct {
	*pgSide
	busy, successor *client
	p50, p99, rate  map[string][]float64
	takes           []float64 // per second, by round
}

func runPGExpiry(ctx context.Context, p *plan, r *report.Report) (err error) {
	r.Method = pgExpiryMethod
	pg, err := startPG(ctx, r, nil)
	if err != nil {
		return err
	}
	e := &expirySide{pgSide: pg, p50: map[string][]float64{}, p99: map[string][]float64{}, rate: map[string][]float64{}}
	defer func() { err = errors.Join(err, e.close(context.WithoutCancel(ctx))) }()
	store, err := e.store(ctx, e.server.URL(pgDatabase), postgres.Options{})
	if err != nil {
		return err
	}
	if e.busy, err = newClient(ctx, store, lease.MaxTTL); err != nil {
		return err
	}
	if e.successor, err = newClient(ctx, store, lease.MaxTTL); err != nil {
		return err
	}
	sessions, rounds := p.pick(expirySessions, 4), p.settings.Rounds
	p.settings.Rounds = min(rounds, 3) // each takes its time to fill
	err = p.eachRound(ctx, func(round int) error { return e.round(ctx, p, store, round, sessions) })
	r.Settings.Rounds, p.settings.Rounds = p.settings.Rounds, rounds
	if err != nil {
		return err
	}
	e.tables(r, sessions)
	return nil
}

// round fills, measures, lets everything expire, and has it taken over.
func (e *expirySide) round(ctx context.Context, p *plan, store *postgres.Store, round, sessions int) error {
	ttl := expiryTTL
	if p.settings.Quick {
		ttl = 2 * time.Second
	}
	names, renewAll, err := fillExpiring(ctx, store, round, sessions, ttl)
	if err != nil {
		return err
	}
	begin, err := within(ctx, time.Second, renewAll)
	if err != nil {
		return err
	}
	expires, window := begin.Add(ttl), 2*p.cell
	if err := e.measure(ctx, expiryIdle, min(window, time.Until(expires)*3/4)); err != nil {
		return err
	}
	if err := pause(ctx, time.Until(expires)); err != nil {
		return err
	}
	if err := e.measure(ctx, expiryDuring, window); err != nil {
		return err
	}
	return e.takeOver(ctx, window, names[:min(len(names), p.pick(expiryTakes, 16))])
}

// fillExpiring opens the sessions, and lets each acquire its names. They are renewed meanwhile.
func fillExpiring(ctx context.Context, store *postgres.Store, round, sessions int, ttl time.Duration) (names []string, renewAll func() error, err error) {
	const renewEach = 25 // sessions
	var clients []*client
	renewAll = func() error {
		for _, c := range clients {
			if err := c.renew(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	for n := range sessions {
		c, err := newClient(ctx, store, ttl)
		if err != nil {
			return nil, nil, err
		}
		clients = append(clients, c)
		for from := 0; from < expiryLeases; from += lease.MaxNames {
			var some []string
			for i := from; i < min(from+lease.MaxNames, expiryLeases); i++ {
				some = append(some, fmt.Sprintf("expiring/%d/%d/%d", round, n, i))
			}
			if _, _, err := c.acquire(ctx, some...); err != nil {
				return nil, nil, err
			}
			names = append(names, some...)
		}
		if n%renewEach == renewEach-1 {
			if err := renewAll(); err != nil {
				return nil, nil, err
			}
		}
	}
	return names, renewAll, nil
}

// within does work again until it took less than d, and returns when it began.
func within(ctx context.Context, d time.Duration, work func() error) (time.Time, error) {
	const tries = 20
	for range tries {
		begin := time.Now()
		if err := errors.Join(work(), ctx.Err()); err != nil {
			return begin, err
		}
		if time.Since(begin) < d {
			return begin, nil
		}
	}
	return time.Time{}, fmt.Errorf("the machine is too busy: the last renewals never took less than %v, so the leases would not expire within that", d)
}

// measure drives the busy session and adds what it gave.
func (e *expirySide) measure(ctx context.Context, phase string, d time.Duration) error {
	s := subject{name: phase, cycle: func(ctx context.Context, g, n int) (time.Duration, error) {
		return e.busy.cycle(ctx, fmt.Sprintf("busy/%d/%d", g, n%128))
	}}
	got, err := drive(ctx, s, expiryGoroutines, d)
	if err != nil {
		return err
	}
	e.p50[phase] = append(e.p50[phase], millis(micro(stats.Percentile(got.acquire, 50))))
	e.p99[phase] = append(e.p99[phase], millis(micro(stats.Percentile(got.acquire, 99))))
	e.rate[phase] = append(e.rate[phase], got.rate)
	return nil
}

func micro(n float64) time.Duration { return time.Duration(n * float64(time.Microsecond)) }

// takeOver measures while a successor takes the names, and how fast it does. It stops at the end of the measurement.
func (e *expirySide) takeOver(ctx context.Context, d time.Duration, names []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		rate float64
		err  error
	}
	done := make(chan result, 1)
	end := time.Now().Add(d)
	go func() {
		taken := make([]int, expiryGoroutines)
		start := time.Now()
		err := share(expiryGoroutines, len(names), func(n int) error {
			if time.Now().After(end) {
				return nil
			}
			_, _, err := e.successor.acquire(ctx, names[n])
			taken[n%expiryGoroutines]++
			return err
		})
		total := 0
		for _, n := range taken {
			total += n
		}
		done <- result{float64(total) / time.Since(start).Seconds(), err}
	}()
	err := e.measure(ctx, expiryTaken, d)
	got := <-done
	e.takes = append(e.takes, got.rate)
	return errors.Join(err, got.err)
}

func (e *expirySide) tables(r *report.Report, sessions int) {
	phases := []string{expiryIdle, expiryDuring, expiryTaken}
	t := report.Table{Title: "Acquires by another session meanwhile:", Label: "phase", Columns: []string{"p50, ms", "p99, ms", "p99 to idle", "cycles per second"}}
	for _, phase := range phases {
		t.Rows = append(t.Rows, report.Row{Label: phase, Cells: []report.Cell{report.Rounds(e.p50[phase]), report.Rounds(e.p99[phase]),
			report.Rounds(stats.Ratios(e.p99[phase], e.p99[expiryIdle])), report.Rounds(e.rate[phase])}})
	}
	r.Tables = append(r.Tables, t, report.Table{Title: "Take-overs:", Label: "what", Columns: []string{"per second"}, Rows: []report.Row{
		{Label: "expired names taken over, 8 goroutines of one session", Cells: []report.Cell{report.Rounds(e.takes)}}}})
	r.Targets = append(r.Targets, report.AtMost(fmt.Sprintf("p99 of acquires while %s leases expire within a second, to idle", report.Format(float64(sessions*expiryLeases))), 3, "x",
		stats.Ratios(e.p99[expiryDuring], e.p99[expiryIdle])))
}
