package main

import (
	"context"
	"errors"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/stats"
)

const pgSlowMethod = "The cycle benchmark on a server whose flushes take 2 ms more: commit_delay = 2000 and commit_siblings = 0 make whoever flushes the log wait for 2 ms first, with the lock on the log held. " +
	"Unlike a slow disk, it lets commits that arrive during these 2 ms join the flush, which favours whoever has many connections. Each measurement is half as long as in the cycle benchmark."

func runPGSlow(ctx context.Context, p *plan, r *report.Report) (err error) {
	r.Method = pgSlowMethod
	goroutines := []int{1, 8, 64, 256}
	if p.settings.Quick {
		goroutines = []int{1, 64}
	}
	side, err := openPGCycle(ctx, p, r, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, side.close(context.WithoutCancel(ctx))) }()
	// Only now: what came before it need not be slow. Every connection reads the files anew.
	for _, text := range []string{`ALTER SYSTEM SET commit_delay = 2000`, `ALTER SYSTEM SET commit_siblings = 0`, `SELECT pg_reload_conf()`} {
		if _, err := side.admin.Exec(ctx, text); err != nil {
			return err
		}
	}
	found := results{}
	all := []string{pgUpsert, pgHand, pgStore, pgSession, pgSync}
	err = p.eachRound(ctx, func(int) error {
		for _, g := range goroutines {
			if err := side.measure(ctx, p.cell/2, found, g, only(side.subjects(g), all)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	ratio := func(name string, g int) []float64 {
		return stats.Ratios(found.of(name, g).rates, found.of(pgHand, g).rates)
	}
	r.AddTable("Ratio to the hand-written lease:", goroutines, []string{pgStore, pgSession, pgSync, pgUpsert}, ratio)
	r.Tables[len(r.Tables)-1].Chart = true
	r.AddTable("Acquire and release, cycles per second (upserts per second in the first row):", goroutines, all, func(name string, g int) []float64 { return found.of(name, g).rates })
	r.Notes = append(r.Notes,
		"At 8 and 64 goroutines two halves of the callers take turns: while the acquires of one half are flushed the other half waits for the lane, so that a cycle costs two flushes, as a hand-written one does, whose 64 connections share theirs.",
		"With fdatasync itself made 2 ms slower (by hand, a preloaded library, two runs of one round on a busy machine) the store did 1.6 times as many cycles as the hand-written lease at 1 goroutine, 1.5 times at 64 and 4.3 times at 256, "+
			"and beside it, in the same runs, with commit_delay 1.8, 0.95 and 2.6: a disk that is slow by itself is kinder to batches than this setting.")
	return nil
}

// only keeps the subjects of these names.
func only(subjects []subject, names []string) []subject {
	var kept []subject
	for _, s := range subjects {
		for _, name := range names {
			if s.name == name {
				kept = append(kept, s)
			}
		}
	}
	return kept
}
