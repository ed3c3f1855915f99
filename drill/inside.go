package drill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/internal/testdb/pgserver"
	"github.com/tenure-go/tenure/store/postgres"
)

// Variant is one of the ways in which a drill was played.
type Variant struct {
	Name          string          `json:"name"`
	Shows         string          `json:"shows"`
	Rounds        int             `json:"rounds"`
	Late          int             `json:"late_writes_sent"`
	AcceptedStale int             `json:"accepted_stale_writes"`
	RefusedStale  int             `json:"refused_stale_writes"`
	LostUpdates   int             `json:"lost_updates"`
	Since         string          `json:"since"`                // what the waits are counted from
	Waited        *model.Handover `json:"waited,omitempty"`     // how long after that the successors were granted
	OverranMS     int64           `json:"overran_ms,omitempty"` // how much longer than its lease the holder worked, at least
	Told          string          `json:"told,omitempty"`       // what a refused holder was told
	Omitted       string          `json:"omitted,omitempty"`    // why it was not played
	OK            bool            `json:"ok"`
}

// write writes the variant for people.
func (v Variant) write(t io.Writer) {
	word := "ok"
	if !v.OK {
		word = "NOT ok"
	}
	if v.Omitted != "" {
		fmt.Fprintf(t, "%s\tOMITTED, %s: %s\n", v.Name, word, v.Omitted)
		return
	}
	fmt.Fprintf(t, "%s\t%s: %s\n", v.Name, word, v.Shows)
	fmt.Fprintf(t, "  late writes\t%d sent, %d accepted after the holder's, %d refused\n", v.Late, v.AcceptedStale, v.RefusedStale)
	if v.Told != "" {
		fmt.Fprintf(t, "  the late writer was told\t%s\n", v.Told)
	}
	if v.OverranMS > 0 {
		fmt.Fprintf(t, "  it worked on after its lease's end for\t%d ms at least\n", v.OverranMS)
	}
	if w := v.Waited; w != nil {
		fmt.Fprintf(t, "  successor granted after %s\tp50 %.0f ms, max %.0f ms", v.Since, float64(w.P50US)/1000, float64(w.MaxUS)/1000)
		if w.WithinMS > 0 {
			fmt.Fprintf(t, "; within %d ms: %d of %d, before: %d", w.WithinMS, w.Within, w.Rounds, w.Early)
		}
		fmt.Fprintln(t)
	}
}

// The TTL of those who hold in a transaction, and how soon after its end, or after the commit that it waits for, a successor is granted.
const (
	insideTTL   = 1500 * time.Millisecond
	insideBound = 500 * time.Millisecond
)

// insideVariant is one way to hold a lease inside a transaction.
type insideVariant struct {
	Variant
	play   func(ctx context.Context, r *round) error
	demand model.Demand
}

// scenario is the variant as a drill of its own.
func (v insideVariant) scenario(of Scenario) Scenario {
	return Scenario{Name: of.Name + " " + v.Name, ttl: insideTTL, margin: 200 * time.Millisecond, atOnce: 2, demand: v.demand, unguarded: guardNone, play: v.play}
}

const sinceEnd = "the lease's end"

func insideVariants(unfenced bool) []insideVariant {
	if unfenced {
		return []insideVariant{{
			Variant: Variant{Name: "unchecked", Since: sinceEnd, Shows: "stopped after a plain look at its lease, its successor writes, and its COMMIT succeeds"},
			play:    playStoppedInside(insideUnchecked), demand: model.Demand{Late: 1}}}
	}
	stopped := model.Demand{Late: 1, Handover: insideBound}
	return []insideVariant{
		{Variant: Variant{Name: "stopped-before-commit", Since: sinceEnd, Shows: "verified and written, then stopped: the server ends the transaction, the COMMIT fails"},
			play: playStoppedInside(insideBeforeCommit), demand: stopped},
		{Variant: Variant{Name: "stopped-before-write", Since: sinceEnd, Shows: "verified, then stopped: the server ends the transaction, the write fails"},
			play: playStoppedInside(insideBeforeWrite), demand: stopped},
		{Variant: Variant{Name: "busy", Since: "its COMMIT", Shows: "in a transaction of its own it works past its lease's end: the successor waits as long, the write is rightful"},
			play: playBusyInside(insideOwn), demand: model.Demand{Handover: insideBound, After: model.Worked, Overran: true}},
		{Variant: Variant{Name: "busy-fenced", Since: sinceEnd, Shows: "in Fenced it is ended when the lease ends, and its write is not there"},
			play: playBusyInside(insideFenced), demand: stopped},
	}
}

func playStoppedInside(where inside) func(ctx context.Context, r *round) error {
	return func(ctx context.Context, r *round) error {
		a, err := r.holder(ctx, owner("a"), 0)
		if err != nil {
			return err
		}
		b, err := r.open(ctx, "B", owner("b"))
		if err != nil {
			return err
		}
		answer, err := r.stopped(ctx, a, command{Element: "a-late", Inside: where})
		if err != nil {
			return err
		}
		if err := r.succeed(ctx, b, "b-1"); err != nil {
			return err
		}
		return errors.Join(r.continued(ctx, a, answer), r.saw(ctx, a, model.HeldTill), leave(ctx, b))
	}
}

// playBusyInside has A work on in its transaction while its renewals come to nothing, so that its lease ends.
func playBusyInside(where inside) func(ctx context.Context, r *round) error {
	return func(ctx context.Context, r *round) error {
		b, err := r.open(ctx, "B", owner("b"))
		if err != nil {
			return err
		}
		a, err := r.holder(ctx, owner("a"), 0)
		if err != nil {
			return err
		}
		if err := steps(ctx, a, command{Op: opFault, Call: callRenew, Fault: faultLoseRequest}); err != nil {
			return err
		}
		work, err := a.order(command{Op: opBusy, Element: "a-2", Inside: where, Busy: millis(insideTTL + insideBusy)})
		if err != nil {
			return err
		}
		if err := r.succeed(ctx, b, "b-1"); err != nil {
			return err
		}
		r.sent = true
		_, err = a.await(ctx, opBusy, work)
		return errors.Join(err, r.saw(ctx, a, model.HeldTill), leave(ctx, b))
	}
}

// insideTransactions plays the variants at the same time, each in a run of its own.
func insideTransactions(ctx context.Context, o Options, sc Scenario) (r Report, err error) {
	if o.URL == "" {
		server, err := pgserver.Start(ctx, pgserver.Options{})
		if err != nil {
			return r, notInstalled(err)
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		o.URL = server.URL("postgres")
		if err := install(ctx, o.URL); err != nil {
			return r, err
		}
	}
	variants := insideVariants(o.Unfenced)
	reports, failures := make([]Report, len(variants)), make([]error, len(variants))
	var all sync.WaitGroup
	for i, v := range variants {
		all.Go(func() {
			reports[i], failures[i] = conduct(ctx, o, v.scenario(sc))
		})
	}
	all.Wait()
	r.OK, r.InvalidRounds = true, []int{}
	for i, v := range variants {
		r.add(v.Variant, reports[i], o.Rounds)
	}
	return r, errors.Join(failures...)
}

// add takes in what a variant came to.
func (r *Report) add(v Variant, part Report, rounds int) {
	v.Rounds, v.Late, v.AcceptedStale, v.RefusedStale = rounds, part.LateWritesSent, part.AcceptedStale, part.RefusedStale
	v.LostUpdates, v.Waited, v.OK, v.OverranMS, v.Told = part.LostUpdates, part.Handover, part.OK, part.overranMS, part.why
	r.Variants = append(r.Variants, v)
	r.LateWritesSent += part.LateWritesSent
	r.AcceptedStale += part.AcceptedStale
	r.RefusedStale += part.RefusedStale
	r.SuccessorWrites += part.SuccessorWrites
	r.LostUpdates += part.LostUpdates
	r.ReplayedRounds += part.ReplayedRounds
	r.Reclaims += part.Reclaims
	r.OK = r.OK && part.OK
	for _, p := range part.Problems {
		r.Problems = append(r.Problems, v.Name+": "+p)
	}
	r.InvalidRounds = append(r.InvalidRounds, part.InvalidRounds...)
}

// notInstalled says what to do where there is no PostgreSQL to start.
func notInstalled(err error) error {
	if errors.Is(err, pgserver.ErrNotInstalled) {
		return fmt.Errorf("%w: this drill starts PostgreSQL servers of its own, and their programs are not here: install the package postgresql; nothing was done: %w", ErrUnsupported, err)
	}
	return err
}

// install puts Tenure's schema into a database of the drill's own.
func install(ctx context.Context, url string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	_, err = postgres.Migrate(ctx, conn, postgres.MigrateOptions{})
	return err
}
