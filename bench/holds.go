package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/bench/handwritten"
	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/stats"
	"github.com/tenure-go/tenure/bench/twin"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/postgres"
	"github.com/tenure-go/tenure/store/sqlite"
)

const (
	holdsMethod = "Each goroutine takes the next free seat of many, holds it for a minute and sells it, again and again; both are durable before they are answered. *Store* is `%s` through `Place` and `Confirm`%s: a hold of its own with its lines, its actor compared, a reference, a " +
		"repetition that is known. *Hand-written* is a pair of statements over a table of seats: UPDATE ... SET holder and expiry WHERE it is free, UPDATE ... SET sold WHERE the holder has it and the expiry has not passed; nothing is known of it afterwards, and a repetition " +
		"is refused as a stranger is%s. Sides take turns within each round, each time with seats that are new."
	pgHoldsHow     = ", on a pool of 8"
	pgHoldsHand    = "; on a pool of as many connections as goroutines, all open"
	sqliteHoldHand = "; on one prepared connection behind a mutex (WAL, synchronous FULL)"
)

// The sides.
const (
	sideHand  = "hand-written pair"
	sideHolds = "store"
)

// seats are seats that are taken one after the other, each once.
type seats struct {
	prefix string
	n      int
	taken  atomic.Int64
}

var errNoSeat = errors.New("all seats are sold: there were to be more")

func (s *seats) next() (string, error) {
	i := s.taken.Add(1) - 1
	if i >= int64(s.n) {
		return "", errNoSeat
	}
	return s.prefix + strconv.FormatInt(i, 10), nil
}

// sell is a subject: place and sale of the next seat. The place is what is timed by itself.
func (s *seats) sell(name string, place, sell func(ctx context.Context, seat string, id fence.ID) error) subject {
	return subject{name: name, cycle: func(ctx context.Context, _, _ int) (time.Duration, error) {
		seat, err := s.next()
		if err != nil {
			return 0, err
		}
		id := lease.NewID()
		start := time.Now()
		err = place(ctx, seat, id)
		took := time.Since(start)
		if err != nil {
			return took, err
		}
		return took, sell(ctx, seat, id)
	}}
}

// holdSubject sells by a store.
func (s *seats) holdSubject(holds hold.Store) subject {
	const actor = "buyer"
	return s.sell(sideHolds, func(ctx context.Context, seat string, id fence.ID) error {
		_, err := holds.Place(ctx, hold.PlaceRequest{ID: id, Actor: actor, TTL: time.Minute, Lines: []hold.Line{{Item: seat, Quantity: 1}}})
		return err
	}, func(ctx context.Context, _ string, id fence.ID) error {
		sold, err := holds.Confirm(ctx, hold.ConfirmRequest{ID: id, Actor: actor, Reference: "paid"})
		if err == nil && sold.State != hold.Confirmed {
			err = fmt.Errorf("a hold of a minute is %v", sold.State)
		}
		return err
	})
}

// measureHolds measures both sides in each round, and writes the tables. side makes a side with new seats, and ends it.
func measureHolds(ctx context.Context, p *plan, r *report.Report, side func(ctx context.Context, name string, round, goroutines int, s *seats) (subject, func(context.Context) error, error)) (results, error) {
	goroutines := []int{1, 8, 64}
	if p.settings.Quick {
		goroutines = []int{1, 64}
	}
	found := results{}
	err := p.eachRound(ctx, func(round int) error {
		for _, g := range goroutines {
			sides := []string{sideHand, sideHolds}
			if round%2 == 1 {
				sides = []string{sideHolds, sideHand}
			}
			for _, name := range sides {
				s := &seats{prefix: fmt.Sprintf("seat-%d-%d-", round, g), n: int(p.cell.Seconds()*float64(p.pick(min(12_000*g, 100_000), 100_000))) + 2000}
				got, end, err := side(ctx, name, round, g, s)
				var measured sample
				if err == nil {
					runtime.GC() // the garbage of one side is not the other's to collect
					measured, err = drive(ctx, got, g, p.cell)
				}
				if err := errors.Join(err, end(context.WithoutCancel(ctx))); err != nil {
					return err
				}
				found.add(name, g, measured)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	names := []string{sideHand, sideHolds}
	r.AddTable("Seats placed and sold a second:", goroutines, names, func(name string, g int) []float64 { return found.of(name, g).rates })
	r.Tables[0].Chart = true
	r.AddTable("Ratio to the hand-written pair:", goroutines, []string{sideHolds}, func(name string, g int) []float64 {
		return stats.Ratios(found.of(name, g).rates, found.of(sideHand, g).rates)
	})
	r.AddTable("Place alone, p50 in microseconds:", goroutines, names, func(name string, g int) []float64 { return found.of(name, g).acquireP50 })
	r.AddTable("Place alone, p99 in microseconds:", goroutines, names, func(name string, g int) []float64 { return found.of(name, g).acquireP99 })
	return found, nil
}

func runPGHolds(ctx context.Context, p *plan, r *report.Report) (err error) {
	r.Method = fmt.Sprintf(holdsMethod, "store/postgres", pgHoldsHow, pgHoldsHand)
	pg, err := startPG(ctx, r, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.close(context.WithoutCancel(ctx))) }()
	if _, err := pg.admin.Exec(ctx, handwritten.SeatSchema); err != nil {
		return err
	}
	store, err := pg.store(ctx, pg.server.URL(pgDatabase), postgres.Options{})
	if err != nil {
		return err
	}
	found, err := measureHolds(ctx, p, r, func(ctx context.Context, name string, _, g int, s *seats) (subject, func(context.Context) error, error) {
		subject, end, err := pg.seatSide(ctx, store, name, g, s)
		if err == nil {
			_, err = pg.admin.Exec(ctx, `VACUUM ANALYSE`)
		}
		if err == nil {
			_, err = pg.admin.Exec(ctx, `CHECKPOINT`)
		}
		return subject, end, err
	})
	if err != nil {
		return err
	}
	r.Targets = append(r.Targets, report.AtLeast("seats placed and sold a second, 64 goroutines", 3000, "", found.of(sideHolds, 64).rates))
	return nil
}

func nothing(context.Context) error { return nil }

// seatSide fills a side's table.
func (s *pgSide) seatSide(ctx context.Context, store *postgres.Store, name string, goroutines int, all *seats) (subject, func(context.Context) error, error) {
	if name == sideHolds {
		_, err := s.admin.Exec(ctx, `TRUNCATE tenure.item, tenure.hold, tenure.hold_line`)
		if err == nil {
			_, err = s.admin.Exec(ctx, `INSERT INTO tenure.item (name, quantity) SELECT $1::text || i, 1 FROM generate_series(0, $2::int - 1) i`, all.prefix, all.n)
		}
		return all.holdSubject(store.Holds()), nothing, err
	}
	pool, err := s.pool(ctx, s.server.URL(pgDatabase), goroutines)
	if err != nil {
		return subject{}, nothing, err
	}
	end := func(context.Context) error { pool.Close(); return nil }
	subject := all.sell(sideHand, func(ctx context.Context, seat string, id fence.ID) error {
		return handwritten.PlaceSeat(ctx, pool, seat, id)
	},
		func(ctx context.Context, seat string, id fence.ID) error {
			return handwritten.SellSeat(ctx, pool, seat, id, "paid")
		})
	return subject, end, handwritten.FillSeats(ctx, s.admin, all.prefix, all.n)
}

func runSQLiteHolds(ctx context.Context, p *plan, r *report.Report) error {
	r.Method = fmt.Sprintf(holdsMethod, "store/sqlite", "", sqliteHoldHand)
	_, err := measureHolds(ctx, p, r, func(ctx context.Context, name string, round, g int, s *seats) (subject, func(context.Context) error, error) {
		if name == sideHand {
			seats, err := twin.OpenSeats(ctx, p.path(fmt.Sprintf("seats-%d-%d.db", round, g)), s.prefix, s.n)
			if err != nil {
				return subject{}, nothing, err
			}
			return s.sell(sideHand, func(ctx context.Context, seat string, id fence.ID) error { return seats.Place(ctx, seat, id[:]) },
				func(ctx context.Context, seat string, id fence.ID) error { return seats.Sell(ctx, seat, id[:], "paid") }), seats.Close, nil
		}
		store, err := sqlite.Open(ctx, sqlite.Config{Path: p.path(fmt.Sprintf("holds-%d-%d.db", round, g))})
		if err != nil {
			return subject{}, nothing, err
		}
		return s.holdSubject(store.Holds()), store.Shutdown, stockSeats(ctx, store.Holds(), s)
	})
	return err
}

// stockSeats makes the seats known to a store.
func stockSeats(ctx context.Context, holds hold.Store, s *seats) error {
	for from := 0; from < s.n; from += hold.MaxItems {
		items := make([]hold.Item, min(hold.MaxItems, s.n-from))
		for i := range items {
			items[i] = hold.Item{Name: s.prefix + strconv.Itoa(from+i), Quantity: 1}
		}
		if err := holds.Stock(ctx, items); err != nil {
			return err
		}
	}
	return nil
}
