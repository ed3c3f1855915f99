//go:build unix

package main

import (
	"context"
	"errors"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/supervise"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/postgres"
)

// reopenPause is between two attempts to open a session in place of one that ended while waiting.
const reopenPause = time.Second

// interruptible is ctx, ended by the first signal that ends a process.
func (r *runner) interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(r.signals.Context(), func() { cancel(context.Cause(r.signals.Context())) })
	return ctx, func() { stop(); cancel(nil) }
}

// acquire waits for the names as the options say, or until a signal ends it. A session that ends while it waits, as
// after a suspend or an outage, is replaced.
func (r *runner) acquire(ctx context.Context, s lease.Store) (*lease.Session, *lease.Lease, error) {
	ctx, done := r.interruptible(ctx)
	defer done()
	if r.o.wait > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, max(r.waitFrom+r.o.wait-r.now(), r.o.wait/2)) // opening the store took its share
		defer stop()
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	failed := r.sayFailure(giveUp)
	want := lease.Want{Names: r.o.names, MaxHold: r.o.maxHold, Try: r.o.try, OnHeld: r.sayHeld(), OnFailure: failed}
	for first := true; ; first = false {
		session, err := lease.Start(ctx, s, lease.Options{Owner: r.o.owner, TTL: r.o.ttl, Margin: r.o.margin})
		if err == nil {
			var held *lease.Lease
			if held, err = session.Acquire(ctx, want); err == nil {
				return session, held, nil
			}
			r.closeSession(ctx, session, !errors.Is(err, lease.ErrUnknown))
		}
		again := errors.Is(err, lease.ErrEnded) || !first && (errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrUnknown))
		if r.o.try || !again || ctx.Err() != nil {
			return nil, nil, interruptedOr(ctx, err)
		}
		if !errors.Is(err, lease.ErrEnded) {
			failed(err)
		}
		select {
		case <-ctx.Done():
			return nil, nil, interruptedOr(ctx, &lease.WaitEndedError{Names: r.o.names, Err: err})
		case <-time.After(reopenPause):
		}
	}
}

// interruptedOr is the signal that ended ctx, if one did, else err.
func interruptedOr(ctx context.Context, err error) error {
	var interrupted *supervise.InterruptedError
	if errors.As(context.Cause(ctx), &interrupted) {
		return interrupted
	}
	return err
}

// sayHeld tells of each new holder once.
func (r *runner) sayHeld() func(*lease.HeldError) {
	var last fence.Token
	var name string
	return func(e *lease.HeldError) {
		if r.o.try || e.Token == last && e.Name == name {
			return
		}
		last, name = e.Token, e.Name
		r.say("waiting: %q is held by %q under token %s for at most %v, unless renewed", e.Name, e.Owner, e.Token, e.Left.Round(time.Millisecond))
	}
}

// sayAgain is how long the same failure is not told again.
const sayAgain = time.Minute

// sayFailure tells of a store that does not answer, when it begins, changes or goes on, and gives up where waiting mends nothing.
func (r *runner) sayFailure(giveUp context.CancelCauseFunc) func(error) {
	var last string
	var at time.Duration
	return func(err error) {
		if errors.Is(err, postgres.ErrSetup) {
			giveUp(errNoUse) // the last line says the rest
			return
		}
		kind := string(lease.CodeOf(err)) + sqlState(err) // the text may name an id or a port, which is new each time
		if kind == last && r.now()-at < sayAgain {
			return
		}
		last, at = kind, r.now()
		r.say("waiting, though the store does not answer as it should: %v", err)
	}
}

// notAcquired is the end of a wait without a grant.
func (r *runner) notAcquired(err error) {
	var interrupted *supervise.InterruptedError
	var held *lease.HeldError
	var ended *lease.WaitEndedError
	switch {
	case errors.As(err, &interrupted):
		r.end("interrupted", 128+int(interrupted.Signal), "%v while waiting; nothing is held, nothing was run", interrupted)
	case errors.As(err, &held):
		r.end("not_acquired", r.o.busyExit, "not acquired: %v; nothing was run", held)
	case errors.Is(err, postgres.ErrSetup), errors.As(err, &ended) && errors.Is(ended.Err, postgres.ErrSetup):
		r.end("no_store", exitNoStore, "the store refuses it: %v; nothing was run", err)
	case errors.As(err, &ended) && ended.Held == nil && (errors.Is(ended.Err, lease.ErrUnavailable) || errors.Is(ended.Err, lease.ErrUnknown)):
		r.end("no_store", exitNoStore, "the store was not reached: %v; nothing was run", ended)
	case errors.As(err, &ended):
		r.end("not_acquired", r.o.busyExit, "not acquired: %v; nothing was run", ended)
	case errors.Is(err, lease.ErrInvalid):
		r.end("not_acquired", exitUsage, "%v", err)
	default:
		r.end("no_store", exitNoStore, "the store did not grant it: %v; nothing was run", err)
	}
}
