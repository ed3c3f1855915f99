package drill

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// strict is the check of a resource that lives with the authority.
func (w *worker) strict(ctx context.Context, tx *sql.Tx, claim fence.Claim) error {
	return w.where.verify(ctx, tx, claim)
}

// highWater is the check of a resource that knows nothing of the authority but the tokens it has seen.
func (w *worker) highWater(ctx context.Context, tx *sql.Tx, claim fence.Claim) error {
	return w.where.enter(ctx, tx, nameOf(w.Run, w.Round), claim)
}

// sameOwner is what passes for a check where labels are taken for proof: whoever holds it now has the same name as I.
func (w *worker) sameOwner(ctx context.Context, _ *sql.Tx, claim fence.Claim) error {
	info, err := w.net.Get(ctx, claim.Name)
	if err != nil {
		return err
	}
	if !info.Held || info.Owner != w.owner {
		return &fence.RefusedError{Resource: claim.Name, Claim: claim, Why: fence.NotGranted}
	}
	return nil
}

// pause makes the last ownership check, stops this process, and, continued, sends the write without asking again.
func (w *worker) pause(ctx context.Context, c command) (reply, error) {
	if c.Inside != "" {
		return w.pauseInside(ctx, c)
	}
	if w.res.objects != nil {
		return w.pauseInObject(ctx, c)
	}
	if err := w.stopOutsideWrites(ctx); err != nil {
		return reply{}, err
	}
	c.Late = true
	return w.write(ctx, c)
}

// stopOutsideWrites makes the last check and stops this process while no call of it is on its way to the authority. The check
// needs no store: it is about the last acknowledgement. On a file, a process that is stopped inside a write stops all others, and a call is answered a
// moment before the store lets go of the file: so the store is shut down for that time. A server's connection stays open.
func (w *worker) stopOutsideWrites(ctx context.Context) error {
	w.net.gate.Lock()
	defer w.net.gate.Unlock()
	if w.site.traits().stopsOthers {
		if err := w.store.Shutdown(ctx); err != nil {
			return err
		}
	}
	if err := w.check(); err != nil {
		return err
	}
	if err := w.stop(ctx); err != nil || !w.site.traits().stopsOthers {
		return err
	}
	return w.openStore(ctx)
}

// writeByAPI writes as a program does that uses the library as it is meant: with the lease's context, in the store's
// fenced transaction. That refuses before anything is sent. So it goes on as a careless one does, with a context of
// its own: then it is the resource that must refuse.
func (w *worker) writeByAPI(ctx context.Context, write writing) (model.Answer, error) {
	answer, err := w.fenced(w.lease.Context(), ctx, write)
	if err == nil || !errors.Is(err, lease.ErrUnavailable) || w.lease.Context().Err() == nil {
		return answer, err // it was sent
	}
	unsent := model.Answer{Round: write.round, Writer: write.writer, Element: write.element, Token: write.claim.Token,
		Late: write.late, Unsent: true, Why: "the lease's context has ended"}
	if err := w.res.record(ctx, unsent); err != nil {
		return answer, err
	}
	return w.fenced(ctx, ctx, write)
}

// fenced writes in a fenced transaction under call, and records the answer under ctx.
func (w *worker) fenced(call, ctx context.Context, write writing) (model.Answer, error) {
	err := w.site.fenced(call, w.store, write.claim, func(ctx context.Context, tx execer) error { return w.res.apply(ctx, tx, write) })
	return w.res.answered(ctx, write, err)
}

// begin runs work by lease.Do and replies once the work has the lease.
func (w *worker) begin(ctx context.Context, c command) (reply, error) {
	workCtx, cancel := context.WithCancel(ctx)
	w.work = &work{cancel: cancel, finish: make(chan struct{}), done: make(chan error, 1)}
	holds := make(chan *lease.Lease, 1)
	go func() {
		w.work.done <- lease.Do(workCtx, w.session, c.Name, func(ctx context.Context, l *lease.Lease) error {
			holds <- l
			<-ctx.Done() // it was cancelled, and takes its time
			<-w.work.finish
			return ctx.Err()
		})
	}()
	select {
	case l := <-holds:
		return w.took(ctx, l, w.now())
	case err := <-w.work.done:
		return reply{}, fmt.Errorf("the work did not begin: %w", err)
	}
}

// finish lets the work return, and replies when lease.Do has. Until the work returned the lease was held for certain.
func (w *worker) finish(ctx context.Context) (reply, error) {
	at := w.now()
	close(w.work.finish)
	select {
	case err := <-w.work.done:
		return reply{AtNS: int64(at), Told: fmt.Sprint(err)},
			w.res.saw(ctx, model.Event{Round: w.Round, Token: w.claim.Token, What: model.Worked, At: at})
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	}
}
