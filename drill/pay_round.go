package drill

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/flakypay"
	"github.com/tenure-go/tenure/operation"
)

// payRound is one round of a drill about payments.
type payRound struct {
	*round
	d  *payDrill
	id string // of the charge
}

const (
	payLook     = 5 * time.Millisecond // between two looks at what others do
	payPatience = 20 * time.Second     // for what takes a second at most where the machine is not slow
)

// payer starts a process and waits until it is ready; it does nothing yet. Times that are 0 are those of a round in which no claim is to end.
func (p *payRound) payer(ctx context.Context, name string, s payerSetup) (*process, error) {
	if s.TTL == 0 {
		s.TTL = millis(longTTL)
	}
	if s.Timeout == 0 {
		s.Timeout = millis(payLong)
	}
	proc, err := launch(p.c.o.Self, setup{place: p.c.o.place(), Run: p.c.run, Name: name, Round: p.n, Role: rolePayer, Service: p.d.base, Pay: &s})
	if err != nil {
		return nil, err
	}
	p.procs = append(p.procs, proc)
	_, err = proc.call(ctx, command{Op: opServe})
	return proc, err
}

// begun is payer, and has it begin.
func (p *payRound) begun(ctx context.Context, name string, s payerSetup) (*process, error) {
	proc, err := p.payer(ctx, name, s)
	if err != nil {
		return nil, err
	}
	return proc, steps(ctx, proc, command{Op: opDo})
}

// submit asks for the charge.
func (p *payRound) submit(ctx context.Context) error {
	req, err := chargeOf(p.c.run, p.n, nameCharge)
	if err != nil {
		return err
	}
	_, err = p.d.ops.Submit(ctx, req)
	return err
}

// charging submits the charge and starts a payer for it.
func (p *payRound) charging(ctx context.Context, name string, s payerSetup) (*process, error) {
	if err := p.submit(ctx); err != nil {
		return nil, err
	}
	return p.begun(ctx, name, s)
}

// waiting waits until ok says so. A machine that is too slow for that has the round begun again.
func waiting(ctx context.Context, purpose string, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, payPatience)
	defer cancel()
	for {
		done, err := ok()
		if done || err != nil {
			return err
		}
		if !sleep(ctx, payLook) {
			return fmt.Errorf("waiting for %s: %w: %w", purpose, errTooSlow, context.Cause(ctx))
		}
	}
}

// until waits until the charge is as ok wants it.
func (p *payRound) until(ctx context.Context, purpose string, ok func(operation.Record) bool) (rec operation.Record, err error) {
	err = waiting(ctx, purpose, func() (bool, error) {
		var err error
		rec, err = p.d.ops.Get(ctx, p.id)
		return err == nil && ok(rec), err
	})
	if errors.Is(err, errTooSlow) {
		err = fmt.Errorf("%w; the charge is %v, its attempts are %+v", err, rec.State, rec.Attempts)
	}
	return rec, err
}

// is waits until the charge has that state, and no longer than until it is decided otherwise.
func (p *payRound) is(ctx context.Context, s operation.State) (operation.Record, error) {
	rec, err := p.until(ctx, "a charge that is "+s.String(), func(rec operation.Record) bool { return rec.State == s || rec.State.Decided() })
	if err == nil && rec.State != s {
		err = fmt.Errorf("%w: the charge is %v, and was to be %v", errOtherwise, rec.State, s)
	}
	return rec, err
}

// learned waits until something is known of every attempt that has ended: of one whose claim has expired, by its own word.
func (p *payRound) learned(ctx context.Context) error {
	_, err := p.until(ctx, "the stale attempt's own word", func(rec operation.Record) bool {
		return !slices.ContainsFunc(rec.Attempts, func(a operation.Attempt) bool { return a.Known == operation.NoAnswer })
	})
	return err
}

// refunded waits until the refund is done.
func (p *payRound) refunded(ctx context.Context) error {
	return p.succeeded(ctx, nameRefund)
}

func (p *payRound) succeeded(ctx context.Context, name string) error {
	return waiting(ctx, name, func() (bool, error) {
		rec, err := p.d.ops.Get(ctx, opName(p.c.run, p.n, name))
		if errors.Is(err, operation.ErrNotFound) {
			return false, nil
		}
		return err == nil && rec.State == operation.Succeeded, err
	})
}

// saw records an event of an attempt at this moment.
func (p *payRound) saw(ctx context.Context, what model.What, attempt fence.Token) error {
	return p.sawAt(ctx, what, attempt, p.c.now())
}

func (p *payRound) sawAt(ctx context.Context, what model.What, attempt fence.Token, at time.Duration) error {
	return p.c.res.saw(ctx, model.Event{Round: p.n, Token: attempt, What: what, At: at})
}

// stoppedAt waits until the kernel says that the process is stopped, makes sure that it stops nobody else, and returns the charge as it stands then, and when its claim ends at the earliest.
func (p *payRound) stoppedAt(ctx context.Context, proc *process) (rec operation.Record, till time.Duration, err error) {
	bound, cancel := context.WithTimeout(ctx, payPatience)
	defer cancel()
	if err := proc.awaitStopped(bound, nil); err != nil {
		if bound.Err() != nil {
			err = fmt.Errorf("%w: %w", errTooSlow, err)
		}
		return rec, 0, err
	}
	if err := p.c.probe(ctx); err != nil {
		return rec, 0, err
	}
	now := p.c.now()
	if rec, err = p.d.ops.Get(ctx, p.id); err != nil {
		return rec, 0, err
	}
	return rec, now + rec.StepIn, p.saw(ctx, model.Stopped, rec.Current())
}

// goOn continues a stopped process.
func (p *payRound) goOn(ctx context.Context, proc *process) error {
	p.sent = true
	if err := resume(proc.cmd.Process.Pid); err != nil {
		return proc.gone("continuing", err)
	}
	return p.saw(ctx, model.Continued, 1)
}

// saidLate waits until a continued process has said what it says late.
func (p *payRound) saidLate(ctx context.Context, proc *process) error {
	return steps(ctx, proc, command{Op: opFinish})
}

// cancel asks that the charge should not happen.
func (p *payRound) cancel(ctx context.Context) error {
	rec, err := p.d.ops.Cancel(ctx, p.id, "a customer has changed their mind")
	if errors.Is(err, operation.ErrDecided) {
		return p.refusal(ctx, err)
	}
	if err == nil && rec.CancelWished {
		return p.saw(ctx, model.Wished, max(rec.Current(), 1))
	}
	return err
}

// refusal records what the store has refused.
func (p *payRound) refusal(ctx context.Context, err error) error {
	var why string
	switch {
	case errors.Is(err, operation.ErrUndecided):
		why = "undecided: "
	case errors.Is(err, operation.ErrDecided):
		why = "decided: "
	default:
		return err
	}
	return p.c.res.record(ctx, model.Answer{Round: p.n, Writer: "desk", Why: why + err.Error()})
}

// refund asks for the refund of the charge, and records where it was refused.
func (p *payRound) refund(ctx context.Context) error {
	req, err := refundOf(p.c.run, p.n)
	if err != nil {
		return err
	}
	if _, err = p.d.ops.Submit(ctx, req); err != nil {
		return p.refusal(ctx, err)
	}
	return nil
}

// gate is a place at the provider where a request of this round waits.
func (p *payRound) gate() string { return p.c.run + "-" + strconv.Itoa(p.n) }

// landed waits until the provider has charged.
func (p *payRound) landed(ctx context.Context) error {
	return waiting(ctx, "the charge at the provider", func() (bool, error) { return p.d.provider.Ledger().Tally(flakypay.Charge, p.id).Effects > 0, nil })
}

// courier brings what comes late, once deliver is closed; brought has what became of it.
func (p *payRound) courier(deliver <-chan struct{}, bring func(context.Context, flakypay.Notice) error) (brought <-chan error) {
	told := make(chan error, 1)
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.d.couriers[p.id] = func(ctx context.Context, n flakypay.Notice) error {
		select {
		case <-deliver:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err := bring(ctx, n)
		select {
		case told <- err:
		default: // it was told before
		}
		return nil
	}
	return told
}

// respond is what a webhook's receiver does: it records the answer as evidence. That it contradicts a decision is no error of the provider's.
func (p *payRound) respond(ctx context.Context, n flakypay.Notice) error {
	attempt, err := strconv.ParseInt(n.Attempt, 10, 64)
	if err != nil {
		return fmt.Errorf("the webhook's attempt %q: %w", n.Attempt, err)
	}
	result, err := json.Marshal(chargeResult{Charge: n.Reply.ID})
	if err != nil {
		return err
	}
	_, err = p.d.ops.Respond(ctx, operation.Response{ID: n.Key, Number: fence.Token(attempt), Answer: operation.Answer{Known: operation.Effective, Result: result}})
	if errors.Is(err, operation.ErrStale) || errors.Is(err, operation.ErrDecided) {
		err = nil
	}
	return errors.Join(err, p.saw(ctx, model.LateTold, fence.Token(attempt)))
}

// write writes a row of the business's table, by whoever knows nothing of operations.
func (p *payRound) write(ctx context.Context, writer, says string, attempt fence.Token) error {
	w := writing{round: p.n, writer: writer, element: says, claim: fence.Claim{Token: attempt}}
	return p.c.res.inTx(ctx, func(tx *sql.Tx) error { return p.c.res.apply(ctx, tx, w) })
}
