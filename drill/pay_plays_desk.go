package drill

import (
	"context"
	"errors"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/internal/flakypay"
	"github.com/tenure-go/tenure/operation"
)

func cancelVariants(unfenced bool) []payVariant {
	saw := []model.What{model.Stopped, model.Continued}
	if unfenced {
		want := func(name string) model.PayWant {
			return model.PayWant{Name: name, Damage: model.ChargedUnrecorded, Table: true, Saw: saw}
		}
		return []payVariant{
			{shows: "cancelled by an UPDATE, and charged", play: playCancelRow(pointBeforeSend), want: want("before-send")},
			{shows: "cancelled by an UPDATE, when it had been charged", play: playCancelRow(pointAfterEffect), want: want("after-effect")},
		}
	}
	wished := func(name string, saw ...model.What) model.PayWant {
		return model.PayWant{Name: name, Saw: append(saw, model.Wished), State: isSucceeded, Known: []string{effective}, Charges: 1, Refunds: 1}
	}
	return []payVariant{
		{shows: "nobody has begun: cancelled, and nothing is charged", play: playCancelFirst, want: model.PayWant{Name: "before-claim", State: isCancelled}},
		{shows: "the attempt is recorded, and then not sent: cancelled, and nothing is charged", play: playCancelUnsent,
			want: model.PayWant{Name: "not-sent", Saw: append(saw, model.Wished), State: isCancelled, Known: []string{notSent}}},
		{shows: "the attempt is recorded: a wish, and refunded once", play: playCancelStopped(pointBeforeSend), want: wished("before-send", saw...)},
		{shows: "the request is on its way: a wish, and refunded once", play: playCancelUnderWay, want: wished("under-way")},
		{shows: "the provider has charged: a wish, and refunded once", play: playCancelStopped(pointAfterEffect), want: wished("after-effect", saw...)},
		{shows: "it is decided: refused, and nothing is refunded", play: playCancelDecided,
			want: model.PayWant{Name: "decided", State: isSucceeded, Known: []string{effective}, Charges: 1, Refused: []string{"decided"}}},
	}
}

// playCancelFirst cancels before a worker is there, and makes sure that one which is there then leaves it alone.
func playCancelFirst(ctx context.Context, p *payRound) error {
	if err := errors.Join(p.submit(ctx), p.cancel(ctx)); err != nil {
		return err
	}
	other, err := chargeOf(p.c.run, p.n, nameOther)
	if err != nil {
		return err
	}
	if _, err := p.d.ops.Submit(ctx, other); err != nil {
		return err
	}
	if _, err := p.begun(ctx, "A", payerSetup{Work: true}); err != nil {
		return err
	}
	return p.succeeded(ctx, nameOther)
}

// cancelStopped cancels while A is stopped at a point, and lets it go on.
func (p *payRound) cancelStopped(ctx context.Context, s payerSetup) error {
	s.Work, s.Reconcile, s.Undoes = true, true, true
	a, err := p.charging(ctx, "A", s)
	if err != nil {
		return err
	}
	if _, _, err := p.stoppedAt(ctx, a); err != nil {
		return err
	}
	return errors.Join(p.cancel(ctx), p.goOn(ctx, a))
}

func playCancelStopped(at point) func(ctx context.Context, p *payRound) error {
	return func(ctx context.Context, p *payRound) error {
		if err := p.cancelStopped(ctx, payerSetup{Stop: at}); err != nil {
			return err
		}
		return p.undone(ctx)
	}
}

func playCancelUnsent(ctx context.Context, p *payRound) error {
	if err := p.cancelStopped(ctx, payerSetup{Stop: pointBeforeSend, Unsent: true}); err != nil {
		return err
	}
	_, err := p.is(ctx, operation.Cancelled)
	return err
}

// undone waits until the charge is compensated, and that is done.
func (p *payRound) undone(ctx context.Context) error {
	_, err := p.until(ctx, "a charge that is compensated", func(rec operation.Record) bool { return rec.UndoneBy != "" })
	return errors.Join(err, p.refunded(ctx))
}

// underWay has A's request wait at the provider.
func (p *payRound) underWay(ctx context.Context, s payerSetup, fault string) error {
	s.Work, s.Fault = true, fault+"; hold_before="+p.gate()
	if _, err := p.charging(ctx, "A", s); err != nil {
		return err
	}
	select {
	case <-p.d.provider.Reached(p.gate()):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func playCancelUnderWay(ctx context.Context, p *payRound) error {
	if err := errors.Join(p.underWay(ctx, payerSetup{Reconcile: true, Undoes: true}, "none"), p.cancel(ctx)); err != nil {
		return err
	}
	p.d.provider.Open(p.gate())
	return p.undone(ctx)
}

func playCancelDecided(ctx context.Context, p *payRound) error {
	if _, err := p.charging(ctx, "A", payerSetup{Work: true, Reconcile: true, Undoes: true}); err != nil {
		return err
	}
	if _, err := p.is(ctx, operation.Succeeded); err != nil {
		return err
	}
	return p.cancel(ctx)
}

// playCancelRow cancels in the business's table, which A has looked at before.
func playCancelRow(at point) func(ctx context.Context, p *payRound) error {
	return func(ctx context.Context, p *payRound) error {
		a, err := p.charging(ctx, "A", payerSetup{Work: true, Stop: at, Manner: mannerLooksOnce})
		if err != nil {
			return err
		}
		rec, _, err := p.stoppedAt(ctx, a)
		if err != nil {
			return err
		}
		if err := errors.Join(p.write(ctx, "desk", model.RowCancelled, rec.Current()), p.goOn(ctx, a)); err != nil {
			return err
		}
		_, err = p.is(ctx, operation.Succeeded)
		return err
	}
}

func reconcilerVariants(unfenced bool) []payVariant {
	saw := []model.What{model.Stopped, model.Continued}
	if unfenced {
		return []payVariant{
			{shows: "what an inquiry says is the decision, the late one's too", play: playTwoAsking(mannerFirstWord),
				want: model.PayWant{Name: "inquiry", Damage: model.DecidedTwice, Table: true, Saw: saw}},
			{shows: "each gives the money back, by a transfer of its own", play: playTwoUndoing(mannerPaysBack),
				want: model.PayWant{Name: "compensation", Damage: model.PaidForNothing, Saw: append(saw, model.Wished)}},
		}
	}
	return []payVariant{
		{shows: "the late one found nothing, and that decides nothing", play: playTwoAsking(""),
			want: model.PayWant{Name: "inquiry", Saw: saw, State: isSucceeded, Known: []string{noAnswer}, Charges: 1, Asked: 2, MostAsked: 4}},
		{shows: "the late one compensates under the same id, which is there", play: playTwoUndoing(""),
			want: model.PayWant{Name: "compensation", Saw: append(saw, model.Wished), State: isSucceeded, Known: []string{effective}, Charges: 1, Refunds: 1}},
	}
}

// twoReconcilers has R1 stop, R2 take over, and once done says so, R1 go on. meanwhile is called when R1 is stopped.
func (p *payRound) twoReconcilers(ctx context.Context, s payerSetup, meanwhile, done func(context.Context) error) error {
	s.Reconcile, s.Leased, s.TTL = true, true, millis(payTTL)
	first, second := s, s
	second.Stop = pointNone
	r2, err := p.payer(ctx, "R2", second)
	if err != nil {
		return err
	}
	r1, err := p.begun(ctx, "R1", first)
	if err != nil {
		return err
	}
	if _, _, err := p.stoppedAt(ctx, r1); err != nil {
		return err
	}
	if err := errors.Join(meanwhile(ctx), steps(ctx, r2, command{Op: opDo})); err != nil {
		return err
	}
	if err := done(ctx); err != nil {
		return err
	}
	return errors.Join(p.goOn(ctx, r1), p.saidLate(ctx, r1))
}

// playTwoAsking has R1 ask before the charge arrives, and R2 when it has.
func playTwoAsking(m manner) func(ctx context.Context, p *payRound) error {
	return func(ctx context.Context, p *payRound) error {
		if err := p.underWay(ctx, payerSetup{Inquire: "find", Timeout: millis(payWait)}, "lost-silent"); err != nil {
			return err
		}
		if _, err := p.is(ctx, operation.Uncertain); err != nil {
			return err
		}
		land := func(ctx context.Context) error {
			p.d.provider.Open(p.gate())
			return p.landed(ctx)
		}
		return p.twoReconcilers(ctx, payerSetup{Inquire: "find", Stop: pointAsked, Manner: m}, land, func(ctx context.Context) error {
			_, err := p.is(ctx, operation.Succeeded)
			return err
		})
	}
}

// playTwoUndoing has both compensate.
func playTwoUndoing(m manner) func(ctx context.Context, p *payRound) error {
	return func(ctx context.Context, p *payRound) error {
		if err := errors.Join(p.underWay(ctx, payerSetup{Undoes: true}, "none"), p.cancel(ctx)); err != nil {
			return err
		}
		p.d.provider.Open(p.gate())
		if _, err := p.is(ctx, operation.Succeeded); err != nil {
			return err
		}
		done := p.undone
		if m == mannerPaysBack {
			done = func(ctx context.Context) error {
				key := opName(p.c.run, p.n, nameTransfer) + "R2"
				return waiting(ctx, "the transfer", func() (bool, error) { return p.d.provider.Ledger().Tally(flakypay.Charge, key).Effects > 0, nil })
			}
		}
		nothing := func(context.Context) error { return nil }
		return p.twoReconcilers(ctx, payerSetup{Undoes: true, Stop: pointUndoing, Manner: m}, nothing, done)
	}
}

func refundVariants(unfenced bool) []payVariant {
	if unfenced {
		return []payVariant{{shows: "the money is given back at once, and the charge never arrives", play: playRefundClosed(true),
			want: model.PayWant{Name: "at-once", Damage: model.PaidForNothing}}}
	}
	return []payVariant{
		{shows: "refused until the charge was found, then done once", play: playRefund,
			want: model.PayWant{Name: "found", Lost: true, State: isSucceeded, Known: []string{noAnswer}, Charges: 1, Refunds: 1, Refused: []string{"undecided"}, Asked: 1, MostAsked: 3}},
		{shows: "refused, and refused for good when the key was closed", play: playRefundClosed(false),
			want: model.PayWant{Name: "closed", State: isFailed, Known: []string{noAnswer}, Refused: []string{"undecided", "decided"}, Asked: 1, MostAsked: 2}},
	}
}

// uncertain has A give up on a request that is on its way.
func (p *payRound) uncertain(ctx context.Context, inquire string) error {
	if err := p.underWay(ctx, payerSetup{Inquire: inquire, Timeout: millis(payWait)}, "lost-silent"); err != nil {
		return err
	}
	_, err := p.is(ctx, operation.Uncertain)
	return err
}

// playRefund asks for a refund before and after the charge is found, each time more than once.
func playRefund(ctx context.Context, p *payRound) error {
	if err := errors.Join(p.uncertain(ctx, "find"), p.refund(ctx)); err != nil {
		return err
	}
	p.d.provider.Open(p.gate())
	if err := p.landed(ctx); err != nil {
		return err
	}
	if _, err := p.begun(ctx, "B", payerSetup{Reconcile: true, Inquire: "find"}); err != nil {
		return err
	}
	if _, err := p.is(ctx, operation.Succeeded); err != nil {
		return err
	}
	return errors.Join(p.refund(ctx), p.refund(ctx), p.refunded(ctx), p.refund(ctx))
}

// playRefundClosed has the key closed before the charge arrives.
func playRefundClosed(atOnce bool) func(ctx context.Context, p *payRound) error {
	return func(ctx context.Context, p *payRound) error {
		if err := p.uncertain(ctx, "close"); err != nil {
			return err
		}
		if atOnce {
			if _, err := p.d.client.charge(ctx, 4200, opName(p.c.run, p.n, nameTransfer)+"desk", 0, ""); err != nil {
				return err
			}
		} else if err := p.refund(ctx); err != nil {
			return err
		}
		if _, err := p.begun(ctx, "B", payerSetup{Reconcile: true, Inquire: "close"}); err != nil {
			return err
		}
		if _, err := p.is(ctx, operation.Failed); err != nil {
			return err
		}
		p.d.provider.Open(p.gate())
		if err := waiting(ctx, "the request that was on its way", func() (bool, error) {
			return len(p.d.provider.Ledger().Entry(flakypay.Charge, p.id).Answers) > 1, nil
		}); err != nil || atOnce {
			return err
		}
		return p.refund(ctx)
	}
}
