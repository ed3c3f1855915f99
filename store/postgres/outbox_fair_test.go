package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/outbox"
)

// putOff delivers a message of a key and puts the next one off.
func (p *post) putOff(ctx context.Context) error {
	p.append(ctx, p.note("k", "1"))
	p.publish(ctx, p.take(ctx, "1"))
	p.append(ctx, p.note("k", "2"))
	c := p.take(ctx, "2")
	_, err := p.outbox.Settle(ctx, c.verdicts(outbox.Verdict{Outcome: outbox.Failed, Error: "no", RetryIn: time.Hour}))
	p.take(ctx)
	return err
}

// replayed demands that the first message of the key is had again.
func (p *post) replayed(ctx context.Context) error {
	c, err := p.claim(ctx, 100)
	if err == nil && !slices.Equal(c.texts, []string{"1"}) {
		return broken("what was replayed before a message that was put off is not found: %q", c.texts)
	}
	return err
}

func replayedBeforePutOff(ctx context.Context, r *rig) error {
	p := newPost(r)
	err := p.putOff(ctx)
	if err == nil {
		_, err = p.outbox.Replay(ctx, outbox.MoveRequest{Limit: 1})
	}
	return errors.Join(err, p.replayed(ctx))
}

func replayedMeanwhile(ctx context.Context, r *rig) error {
	p := newPost(r)
	if err := p.putOff(ctx); err != nil {
		return err
	}
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `LOCK TABLE tenure.outbox_pause`)
	var early claimed
	claim := start(func() (err error) { early, err = p.claim(ctx, 100); return err })
	if !r.blocked(ctx, 1, claim) {
		return fmt.Errorf("it does not wait: %w", <-claim)
	}
	_, err := p.outbox.Replay(ctx, outbox.MoveRequest{Limit: 1})
	x.commit(ctx)
	if err := errors.Join(err, <-claim); err != nil || len(early.texts) > 0 {
		return err // it may have it, or leave it to the next one
	}
	return p.replayed(ctx)
}

// returned gives back whatever is claimed that is of a key, and demands that the message without one is handed out after a few.
func (p *post) returned(ctx context.Context) error {
	for range 5 {
		c, err := p.claim(ctx, 2)
		if err != nil || slices.Contains(c.texts, "other") {
			return err
		}
		if _, err := p.outbox.Settle(ctx, c.verdicts(outbox.Verdict{Outcome: outbox.Returned})); err != nil {
			return err
		}
	}
	return broken("a key that is returned each time keeps a message of nobody's key waiting")
}

func returnedForEver(ctx context.Context, r *rig) error {
	p := newPost(r)
	p.append(ctx, p.note("k", "1"), p.note("k", "2"), p.note("k", "3"), p.note("", "other"))
	return p.returned(ctx)
}

func returnedBeforeSuspect(ctx context.Context, r *rig) error {
	p := newPost(r)
	p.append(ctx, p.note("k", "1"), p.note("", "other"))
	if _, err := r.own.Exec(ctx, `UPDATE tenure.outbox_message SET lost = 2 WHERE NOT ordered`); err != nil {
		return err
	}
	return p.returned(ctx)
}

func aloneBetweenDead(ctx context.Context, r *rig) error {
	p := newPost(r)
	suspect, last := p.note("", "alone"), p.note("", "dead 2")
	suspect.Topic, last.Topic = "others", "others"
	p.append(ctx, p.note("k", "dead 1"), suspect, last)
	if _, err := r.own.Exec(ctx, `UPDATE tenure.outbox_message SET attempts = 10 WHERE payload LIKE 'dead%'`); err != nil {
		return err
	}
	if _, err := r.own.Exec(ctx, `UPDATE tenure.outbox_message SET lost = 2 WHERE payload = 'alone'`); err != nil {
		return err
	}
	c, err := p.claim(ctx, 100)
	if err != nil || !slices.Equal(c.texts, []string{"alone"}) {
		return fmt.Errorf("claimed %q: %w", c.texts, err)
	}
	p.publish(ctx, c)
	next, err := p.claim(ctx, 100)
	if err == nil && c.Dead+next.Dead != 2 {
		return broken("of two that were to be given up %d were, and the other is found by nobody", c.Dead+next.Dead)
	}
	return err
}
