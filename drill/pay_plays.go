package drill

import (
	"context"
	"errors"
	"slices"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/internal/flakypay"
	"github.com/tenure-go/tenure/operation"
)

// What the states and what is known of attempts are called, where the judge compares them.
const (
	isSucceeded = "succeeded"
	isFailed    = "failed"
	isCancelled = "cancelled"
	noAnswer    = "no answer"
	effective   = "effective"
	refused     = "refused"
	notSent     = "not sent"
)

// payVariants are the variants of a drill about payments.
func payVariants(name string, unfenced bool) []payVariant {
	switch name {
	case "lost-effect-response":
		return lostVariants(unfenced)
	case "late-response":
		return lateVariants(unfenced)
	case "stale-completion":
		return staleVariants(unfenced)
	case "crash-between-record-and-send":
		return crashBeforeVariants(unfenced)
	case "crash-between-effect-and-record":
		return crashAfterVariants(unfenced)
	case "cancel-race":
		return cancelVariants(unfenced)
	case "two-reconcilers":
		return reconcilerVariants(unfenced)
	case "refund-of-uncertain":
		return refundVariants(unfenced)
	}
	return nil
}

func lostVariants(unfenced bool) []payVariant {
	if unfenced {
		return []payVariant{{shows: "an error is a failure, and the next attempt has a key of its own", play: playLost(payerSetup{Manner: mannerNewKey}),
			want: model.PayWant{Name: "new-key", Damage: model.ChargedTwice, Lost: true}}}
	}
	want := func(name string) model.PayWant {
		return model.PayWant{Name: name, Lost: true, State: isSucceeded, Known: []string{noAnswer}, Charges: 1, Asked: 1, MostAsked: 3}
	}
	return []payVariant{
		{shows: "an inquiry finds the charge", play: playLost(payerSetup{Reconcile: true, Inquire: "find"}), want: want("inquiry")},
		{shows: "an inquiry that closes the key finds the charge", play: playLost(payerSetup{Reconcile: true, Inquire: "close"}), want: want("closing")},
	}
}

// playLost has the answer to the first attempt lost.
func playLost(s payerSetup) func(ctx context.Context, p *payRound) error {
	s.Work, s.Fault = true, "lost"
	return func(ctx context.Context, p *payRound) error {
		if _, err := p.charging(ctx, "A", s); err != nil {
			return err
		}
		_, err := p.is(ctx, operation.Succeeded)
		return err
	}
}

func lateVariants(unfenced bool) []payVariant {
	late := []model.What{model.LateTold}
	if unfenced {
		return []payVariant{
			{shows: "the late answer is dropped, and the timeout was taken for a failure", play: playLateDropped,
				want: model.PayWant{Name: "dropped", Damage: model.ChargedTwice, Saw: late, Lost: true}},
			{shows: "the late answer overwrites what was decided", play: playLateOverwrites,
				want: model.PayWant{Name: "overwrites", Damage: model.DecidedTwice, Table: true, Saw: late, Lost: true}},
		}
	}
	return []payVariant{
		{shows: "the late answer settles what was uncertain", play: playLate(false),
			want: model.PayWant{Name: "uncertain", Saw: late, Lost: true, State: isSucceeded, Known: []string{effective}, Charges: 1}},
		{shows: "an operator had decided: the decision stays, and the answer is a conflict that is listed", play: playLate(true),
			want: model.PayWant{Name: "decided", Saw: late, Lost: true, State: isFailed, Known: []string{effective}, Charges: 1, Conflicts: 1}},
	}
}

// lateFault charges, says nothing, and has the answer delivered by the webhook.
const lateFault = "lost-silent; webhooks=1; webhook_after_ms=1"

// playLate has the worker give up, and then the answer come.
func playLate(decided bool) func(ctx context.Context, p *payRound) error {
	return func(ctx context.Context, p *payRound) error {
		deliver := make(chan struct{})
		brought := p.courier(deliver, p.respond)
		if _, err := p.charging(ctx, "A", payerSetup{Work: true, Fault: lateFault, Timeout: millis(payWait)}); err != nil {
			return err
		}
		if _, err := p.is(ctx, operation.Uncertain); err != nil {
			return err
		}
		want := operation.Succeeded
		if decided {
			want = operation.Failed
			if _, err := p.d.ops.Resolve(ctx, operation.Verdict{ID: p.id, State: want, Reason: "the customer has paid in cash"}); err != nil {
				return err
			}
		}
		close(deliver)
		if err := receiveErr(ctx, brought); err != nil {
			return err
		}
		_, err := p.is(ctx, want)
		return err
	}
}

// receiveErr waits for what became of something.
func receiveErr(ctx context.Context, from <-chan error) error {
	select {
	case err := <-from:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// playLateDropped has nobody record the late answer.
func playLateDropped(ctx context.Context, p *payRound) error {
	deliver := make(chan struct{})
	brought := p.courier(deliver, func(ctx context.Context, _ flakypay.Notice) error { return p.saw(ctx, model.LateTold, 1) })
	if _, err := p.charging(ctx, "A", payerSetup{Work: true, Fault: lateFault, Timeout: millis(payWait), Manner: mannerNewKey}); err != nil {
		return err
	}
	if _, err := p.until(ctx, "a first attempt that is over", func(rec operation.Record) bool {
		return len(rec.Attempts) > 0 && rec.Attempts[0].Known != operation.Open
	}); err != nil {
		return err
	}
	close(deliver)
	if err := receiveErr(ctx, brought); err != nil {
		return err
	}
	_, err := p.is(ctx, operation.Succeeded)
	return err
}

// playLateOverwrites has people decide in their own table, by the timeout, and the late answer written over it.
func playLateOverwrites(ctx context.Context, p *payRound) error {
	deliver := make(chan struct{})
	brought := p.courier(deliver, func(ctx context.Context, _ flakypay.Notice) error {
		return errors.Join(p.write(ctx, "webhook", model.RowDone, 1), p.saw(ctx, model.LateTold, 1))
	})
	if _, err := p.charging(ctx, "A", payerSetup{Work: true, Fault: lateFault, Timeout: millis(payWait)}); err != nil {
		return err
	}
	if _, err := p.is(ctx, operation.Uncertain); err != nil {
		return err
	}
	if err := p.write(ctx, "desk", model.RowFailed, 1); err != nil {
		return err
	}
	close(deliver)
	return receiveErr(ctx, brought)
}

func staleVariants(unfenced bool) []payVariant {
	saw := []model.What{model.Stopped, model.Continued}
	late := []string{"stale"}
	charge, local := payerSetup{Row: true, Window: true}, payerSetup{Row: true, Local: true}
	no := local
	no.Refuses = true
	if unfenced {
		plain := func(s payerSetup) payerSetup { s.Manner = mannerPlainRow; return s }
		return []payVariant{
			{shows: "the newer attempt has failed, and the stale one writes that it is done", play: playStale(plain(local), plain(no), hasRefused, operation.Succeeded),
				want: model.PayWant{Name: "newer-failed", Damage: model.DecidedTwice, Table: true, Saw: saw}},
			{shows: "the newer attempt has succeeded, and the stale one writes its row as well", play: playStale(plain(charge), plain(charge), hasSucceeded, operation.Succeeded),
				want: model.PayWant{Name: "newer-succeeded", Damage: model.StaleRow, Table: true, Saw: saw}},
		}
	}
	return []payVariant{
		{shows: "the newer attempt has succeeded: its row is there, and no other", play: playStale(charge, charge, hasSucceeded, operation.Succeeded),
			want: model.PayWant{Name: "newer-succeeded", Saw: saw, State: isSucceeded, Known: []string{effective, effective}, Charges: 1, Rows: []string{"B"}, Refused: late}},
		{shows: "the newer attempt has failed: so it stays, and there is no row", play: playStale(local, no, hasRefused, operation.Failed),
			want: model.PayWant{Name: "newer-failed", Saw: saw, State: isFailed, EachKnown: refused, Refused: late}},
		{shows: "the newer attempt is at work: it completes, and its row is there", play: playStaleBeside(local),
			want: model.PayWant{Name: "newer-runs", Saw: saw, State: isSucceeded, Known: []string{refused, effective}, Rows: []string{"B"}, Refused: late}},
	}
}

// What a newer attempt has come to. One that was refused decides nothing while nobody knows what became of the older one.
func hasSucceeded(rec operation.Record) bool { return rec.State == operation.Succeeded }
func hasRefused(rec operation.Record) bool {
	return slices.ContainsFunc(rec.Attempts, func(a operation.Attempt) bool { return a.Known == operation.Refused })
}

// overtaken lets A charge until it stops, and B begin to work after that.
func (p *payRound) overtaken(ctx context.Context, first, second payerSetup) (a, b *process, err error) {
	if b, err = p.payer(ctx, "B", second); err != nil {
		return nil, nil, err
	}
	if a, err = p.charging(ctx, "A", first); err != nil {
		return nil, nil, err
	}
	if _, _, err := p.stoppedAt(ctx, a); err != nil {
		return nil, nil, err
	}
	return a, b, steps(ctx, b, command{Op: opDo})
}

// playStale stops A before it completes, until B's attempt has come to an end. What A's worker has to tell then is evidence, with which the charge is decided.
func playStale(first, second payerSetup, newer func(operation.Record) bool, end operation.State) func(ctx context.Context, p *payRound) error {
	first.Work, first.Stop, first.Last, first.TTL = true, pointAfterEffect, true, millis(payTTL)
	second.Work, second.Reconcile = true, true
	return func(ctx context.Context, p *payRound) error {
		a, _, err := p.overtaken(ctx, first, second)
		if err != nil {
			return err
		}
		if _, err := p.until(ctx, "a newer attempt that has ended", newer); err != nil {
			return err
		}
		if err := errors.Join(p.goOn(ctx, a), p.saidLate(ctx, a), p.learned(ctx)); err != nil {
			return err
		}
		_, err = p.is(ctx, end)
		return err
	}
}

// playStaleBeside stops A before it completes, and B too, in an attempt that is the current one; A goes on first.
func playStaleBeside(s payerSetup) func(ctx context.Context, p *payRound) error {
	first, second := s, s
	first.Work, first.Stop, first.Last, first.TTL = true, pointAfterEffect, true, millis(payTTL)
	second.Work, second.Reconcile, second.Stop = true, true, pointAfterEffect
	return func(ctx context.Context, p *payRound) error {
		a, b, err := p.overtaken(ctx, first, second)
		if err != nil {
			return err
		}
		if _, _, err := p.stoppedAt(ctx, b); err != nil {
			return err
		}
		if err := errors.Join(p.goOn(ctx, a), p.saidLate(ctx, a), p.learned(ctx)); err != nil {
			return err
		}
		if err := p.goOn(ctx, b); err != nil {
			return err
		}
		_, err = p.is(ctx, operation.Succeeded)
		return err
	}
}

func crashBeforeVariants(unfenced bool) []payVariant {
	saw := []model.What{model.Stopped, model.Killed}
	if unfenced {
		return []payVariant{{shows: "it records that it is done before it sends", play: playDoneFirst,
			want: model.PayWant{Name: "done-first", Damage: model.DoneUncharged, Saw: saw, Unsent: true}}}
	}
	return []payVariant{
		{shows: "the provider knows the key: another attempt is made under it", play: playCrash(pointBeforeSend, payerSetup{Window: true}, operation.Succeeded),
			want: model.PayWant{Name: "window", Saw: saw, Unsent: true, State: isSucceeded, Known: []string{noAnswer, effective}, Charges: 1, Moved: payLeft}},
		{shows: "an inquiry closes the key: it has failed for certain", play: playCrash(pointBeforeSend, payerSetup{Inquire: "close"}, operation.Failed),
			want: model.PayWant{Name: "closing", Saw: saw, Unsent: true, State: isFailed, Known: []string{noAnswer}, Asked: 1, MostAsked: 2, Moved: payLeft}},
	}
}

func crashAfterVariants(unfenced bool) []payVariant {
	saw := []model.What{model.Stopped, model.Killed}
	if unfenced {
		return []payVariant{{shows: "the next attempt has a key of its own", play: playCrash(pointAfterEffect, payerSetup{Window: true, Manner: mannerNewKey}, operation.Succeeded),
			want: model.PayWant{Name: "new-key", Damage: model.ChargedTwice, Saw: saw}}}
	}
	return []payVariant{
		{shows: "the provider knows the key: another attempt is told of the charge", play: playCrash(pointAfterEffect, payerSetup{Window: true}, operation.Succeeded),
			want: model.PayWant{Name: "window", Saw: saw, State: isSucceeded, Known: []string{noAnswer, effective}, Charges: 1, Moved: payLeft}},
		{shows: "an inquiry finds the charge", play: playCrash(pointAfterEffect, payerSetup{Inquire: "find"}, operation.Succeeded),
			want: model.PayWant{Name: "inquiry", Saw: saw, State: isSucceeded, Known: []string{noAnswer}, Charges: 1, Asked: 1, MostAsked: 2, Moved: payLeft}},
	}
}

// playCrash kills A at a point, and has B go on.
func playCrash(at point, s payerSetup, end operation.State) func(ctx context.Context, p *payRound) error {
	first, second := s, s
	first.Work, first.Stop, first.TTL = true, at, millis(payTTL)
	second.Work, second.Reconcile = true, true
	return func(ctx context.Context, p *payRound) error {
		b, err := p.payer(ctx, "B", second)
		if err != nil {
			return err
		}
		a, err := p.charging(ctx, "A", first)
		if err != nil {
			return err
		}
		rec, till, err := p.stoppedAt(ctx, a)
		if err != nil {
			return err
		}
		p.sent = true
		a.kill()
		attempt := rec.Current()
		if err := errors.Join(p.saw(ctx, model.Killed, attempt), p.sawAt(ctx, model.ClaimTill, attempt, till), steps(ctx, b, command{Op: opDo})); err != nil {
			return err
		}
		if _, err := p.until(ctx, "an operation in other hands", func(rec operation.Record) bool {
			return len(rec.Attempts) > 1 || rec.Inquiries > 0 || rec.State.Decided()
		}); err != nil {
			return err
		}
		if err := p.saw(ctx, model.Moved, attempt); err != nil {
			return err
		}
		_, err = p.is(ctx, end)
		return err
	}
}

// playDoneFirst kills A, which has recorded that it is done and has not sent.
func playDoneFirst(ctx context.Context, p *payRound) error {
	a, err := p.charging(ctx, "A", payerSetup{Work: true, Stop: pointBeforeSend, Manner: mannerDoneFirst})
	if err != nil {
		return err
	}
	rec, _, err := p.stoppedAt(ctx, a)
	if err != nil {
		return err
	}
	p.sent = true
	a.kill()
	return p.saw(ctx, model.Killed, rec.Current())
}
