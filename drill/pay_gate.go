package drill

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/postgres"
	"github.com/tenure-go/tenure/store/sqlite"
)

// operationsOf are the operations of a store.
func operationsOf(a authority) (operation.Backend, error) {
	switch s := a.(type) {
	case *sqlite.Store:
		return s.Operations(), nil
	case *postgres.Store:
		return s.Operations(), nil
	}
	return nil, fmt.Errorf("%w: %T keeps no operations", ErrProcess, a)
}

// completeIn is the store's own CompleteTx, in a transaction of the resource beside it.
func completeIn(ctx context.Context, a authority, tx *sql.Tx, done operation.Completion) error {
	switch s := a.(type) {
	case *sqlite.Store:
		return s.Operations().CompleteTx(ctx, tx, done)
	case *postgres.Store:
		return s.Operations().CompleteSQL(ctx, tx, done)
	}
	return fmt.Errorf("%w: %T keeps no operations", ErrProcess, a)
}

// payLate bounds a call that is made late.
const payLate = 10 * time.Second

// payHold is for how long a reconciler of a drill puts off what it has taken up: its own choice is some 20 s, which nobody who watches a drill waits for.
const payHold = time.Second

// gatedOps is the way from a worker or a reconciler to the store. No call is on its way while the process is to be stopped. Once it was, and goes on, what it says late is said whatever
// its contexts have come to: a process that is late does not ask.
type gatedOps struct {
	gate *sync.RWMutex
	to   operation.Backend // under the gate
	late atomic.Bool
	last bool   // who is late takes nothing more up
	said func() // what was late has been said
}

// pass is how a call is made.
func (g *gatedOps) pass(ctx context.Context) (context.Context, func()) {
	g.gate.RLock()
	if !g.late.Load() {
		return ctx, g.gate.RUnlock
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), payLate)
	return ctx, func() {
		cancel()
		g.gate.RUnlock()
	}
}

// Submit is part of [operation.Store].
func (g *gatedOps) Submit(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
	ctx, done := g.pass(ctx)
	defer done()
	return g.to.Submit(ctx, req)
}

// Get is part of [operation.Store].
func (g *gatedOps) Get(ctx context.Context, id string) (operation.Record, error) {
	ctx, done := g.pass(ctx)
	defer done()
	return g.to.Get(ctx, id)
}

// Respond is part of [operation.Store].
func (g *gatedOps) Respond(ctx context.Context, resp operation.Response) (operation.Record, error) {
	ctx, done := g.pass(ctx)
	defer done()
	return g.to.Respond(ctx, resp)
}

// Claim is part of [operation.Queue].
func (g *gatedOps) Claim(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
	ctx, done := g.pass(ctx)
	defer done()
	if g.last && g.late.Load() {
		return nil, nil
	}
	return g.to.Claim(ctx, req)
}

// Renew is part of [operation.Queue].
func (g *gatedOps) Renew(ctx context.Context, req operation.RenewRequest) ([]operation.Ref, error) {
	ctx, done := g.pass(ctx)
	defer done()
	return g.to.Renew(ctx, req)
}

// Complete is part of [operation.Queue].
func (g *gatedOps) Complete(ctx context.Context, all []operation.Completion) ([]error, error) {
	ctx, done := g.pass(ctx)
	defer done()
	return g.to.Complete(ctx, all)
}

// Expire is part of [operation.Desk].
func (g *gatedOps) Expire(ctx context.Context, limit int) (int, error) {
	ctx, done := g.pass(ctx)
	defer done()
	return g.to.Expire(ctx, limit)
}

// Due is part of [operation.Desk].
func (g *gatedOps) Due(ctx context.Context, req operation.DueRequest) ([]operation.Record, error) {
	ctx, done := g.pass(ctx)
	defer done()
	req.Hold = min(req.Hold, payHold)
	return g.to.Due(ctx, req)
}

// Inquired is part of [operation.Desk].
func (g *gatedOps) Inquired(ctx context.Context, inq operation.Inquiry) (operation.Record, error) {
	ctx, done := g.pass(ctx)
	defer done()
	rec, err := g.to.Inquired(ctx, inq)
	if g.late.Load() {
		g.said()
	}
	return rec, err
}

// Undone is part of [operation.Desk].
func (g *gatedOps) Undone(ctx context.Context, id, compensation string) (operation.Record, error) {
	ctx, done := g.pass(ctx)
	defer done()
	rec, err := g.to.Undone(ctx, id, compensation)
	if g.late.Load() {
		g.said()
	}
	return rec, err
}
