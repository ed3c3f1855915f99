package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/bench/handwritten"
	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/lease"
)

const pgOutboxProfileMethod = "Where the time of an outbox goes: transactions that append one message and nothing else, on one connection, and %s messages that four relays claim and settle in batches of 1,000, by hand and by Tenure, on a server with pg_stat_statements, which counts what runs inside of functions too and makes everything slower by some per cent. " +
	"Times of outer statements hold those of the inner ones. Calls of functions without a statement of their own are in none."

func runPGOutboxProfile(ctx context.Context, p *plan, r *report.Report) (err error) {
	messages := p.pick(50_000, 2000)
	r.Method = fmt.Sprintf(pgOutboxProfileMethod, report.Format(float64(messages)))
	r.Settings.Rounds = 1
	o, err := openOutbox(ctx, r, map[string]string{"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "all"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close(context.WithoutCancel(ctx))) }()
	if _, err := o.admin.Exec(ctx, `CREATE EXTENSION pg_stat_statements`); err != nil {
		return err
	}
	for _, side := range []string{outboxHand, outboxUnordered} {
		got := subject{name: side, server: o.processTime, cycle: func(ctx context.Context, _, _ int) (time.Duration, error) { return 0, o.append(ctx, side, false) }}
		if err := o.reset(ctx); err != nil {
			return err
		}
		measured, err := drive(ctx, got, 1, 2*p.cell)
		if err != nil {
			return err
		}
		if err := o.tell(ctx, r, fmt.Sprintf("Appended, %s; %s a second, processor time each %s us of the server and %s us of the load. Its statements:",
			side, report.Format(measured.rate), report.Format(measured.server), report.Format(measured.cpu))); err != nil {
			return err
		}
	}
	if err := o.clear(ctx); err != nil {
		return err
	}
	if err := handwritten.FillMessages(ctx, o.admin, outboxTopic, o.payload, messages); err != nil {
		return err
	}
	if err := o.fill(ctx, messages, 0); err != nil {
		return err
	}
	for _, side := range []string{outboxHand, outboxUnordered} {
		if err := o.profileRelays(ctx, r, side, messages); err != nil {
			return err
		}
	}
	r.Notes = append(r.Notes, "An append takes 52 us on the server, and its statements run for 24 of these; the insert written by hand takes 11. The message's own insert takes 18, for a larger row and an id that may be known; the second row takes 4, and the look for the topic 2. The other 28 are what PL/pgSQL and the executor take to begin and end the function and its statements, to check what was given, and to look for a relay that waits: most of what an append costs above the other.")
	return nil
}

func (o *outboxSide) profileRelays(ctx context.Context, r *report.Report, side string, messages int) error {
	if err := errors.Join(o.settled(ctx), o.reset(ctx)); err != nil {
		return err
	}
	served, spent := o.processTime(), processTime()
	rate, err := drain(ctx, 4, messages, func(ctx context.Context) (int, error) {
		if side == outboxHand {
			return handwritten.RelayMessages(ctx, o.hand, lease.NewID(), outboxBatch)
		}
		n, _, err := publish(ctx, o.mail, outboxBatch)
		return n, err
	})
	served, spent = o.processTime()-served, processTime()-spent
	if err != nil {
		return err
	}
	return o.tell(ctx, r, fmt.Sprintf("Claimed and settled by four relays, %s; %s a second, processor time each %s us of the server and %s us of the load. Its statements:",
		side, report.Format(rate), report.Format(micros(served)/float64(messages)), report.Format(micros(spent)/float64(messages))))
}

func (o *outboxSide) reset(ctx context.Context) error {
	_, err := o.admin.Exec(ctx, `SELECT pg_stat_statements_reset()`)
	return err
}

// tell adds what was counted.
func (o *outboxSide) tell(ctx context.Context, r *report.Report, title string) error {
	t, err := o.statements(ctx)
	t.Title = title
	r.Tables = append(r.Tables, t)
	return err
}
