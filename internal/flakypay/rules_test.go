package flakypay

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Each check below runs on the provider as it is, and on a broken twin that it must catch.

func holds(t *testing.T, check func(*testing.T, rules) error, twin func(*rules)) {
	t.Helper()
	t.Run("holds", func(t *testing.T) {
		if err := check(t, ours()); err != nil {
			t.Error(err)
		}
	})
	t.Run("twin is caught", func(t *testing.T) {
		r := ours()
		twin(&r)
		if err := check(t, r); err == nil {
			t.Error("the broken twin passes")
		} else {
			t.Log(err)
		}
	})
}

// The twin answers that it has closed the key, and has not.
func TestClosedKeyNeverHasAnEffect(t *testing.T) {
	holds(t, closedKey, func(r *rules) {
		r.close = func(p *Provider, q *ask) *outcome {
			if o := findLocked(p, q); o.reply.Finding != NotObserved {
				return o
			}
			return finding(KeyClosed, nil, reasonClosed)
		}
	})
}

func closedKey(t *testing.T, r rules) error {
	t.Helper()
	g := begin(t, Config{Closes: true, HeaderFaults: true}, r)
	ctx := t.Context()
	answer, err := g.started(ctx, "flight", func() got { return g.charge(ctx, "k", 5, HeaderFault, "none; hold_before=flight") })
	if err != nil {
		return err
	}
	closed := g.closeKey(ctx, "k")
	g.Open("flight")
	late, again := <-answer, g.charge(ctx, "k", 5)
	found := g.find(ctx, "k")
	tally := g.Ledger().Tally(Charge, "k")
	switch {
	case closed.Finding != KeyClosed || !closed.Final:
		return fmt.Errorf("closing: %+v", closed)
	case tally.Effects != 0 || !tally.Closed:
		return fmt.Errorf("after the closing: %+v", tally)
	case late.status != 402 || !late.Final || again.status != 402 || !again.Final || found.Finding != KeyClosed:
		return fmt.Errorf("the one in flight %+v, another %+v, inquiry %+v", late, again, found)
	}
	return nil
}

// The twin keeps the answer in a step after the effect's.
func TestEffectAndAnswerAreOneStep(t *testing.T) {
	holds(t, oneStep, func(r *rules) {
		r.commit = func(p *Provider, q *ask) *outcome {
			q.fault.Forget = true // the effect alone
			o := commitLocked(p, q)
			if o != nil && o.means == MeansEffect {
				q.acc.kept, q.acc.known, q.acc.print = o, true, q.print
			}
			return o
		}
	})
}

// oneStep kills the provider after each line of its file, and within it, and repeats the charge.
func oneStep(t *testing.T, r rules) error {
	t.Helper()
	ctx, name := t.Context(), filepath.Join(t.TempDir(), "ledger")
	g := begin(t, Config{File: name}, r)
	if out := g.charge(ctx, "k", 5); out.status != 201 {
		return fmt.Errorf("%+v", out)
	}
	if again := g.charge(ctx, "k", 5); again.status != 201 || again.header.Get(HeaderReplay) == "" {
		return fmt.Errorf("replay: %+v", again)
	}
	if err := g.stop(); err != nil {
		return err
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for cut := range len(whole) + 1 {
		if cut%40 != 0 && cut != len(whole) && whole[cut] != '\n' && whole[cut-1] != '\n' {
			continue
		}
		part := filepath.Join(t.TempDir(), "part")
		if err := os.WriteFile(part, whole[:cut], 0o600); err != nil {
			return err
		}
		g := begin(t, Config{File: part}, r)
		out := g.charge(ctx, "k", 5)
		tally := g.Ledger().Tally(Charge, "k")
		if err := g.stop(); err != nil {
			return err
		}
		if out.status != 201 || out.ID != "ch_1" || tally.Effects != 1 {
			return fmt.Errorf("killed after %d of %d bytes: %d %s, %d effects", cut, len(whole), out.status, out.body, tally.Effects)
		}
	}
	return nil
}

// The twin compares the instant when the request arrives.
func TestNotAfterIsEnforcedInTheStepOfTheEffect(t *testing.T) {
	holds(t, notAfter, func(r *rules) {
		r.arrive = func(p *Provider, q *ask) *outcome {
			o := arriveLocked(p, q)
			if o == nil && p.ledger.now < time.Duration(q.notAfter)*time.Millisecond {
				q.bounded = false
			}
			return o
		}
	})
}

func notAfter(t *testing.T, r rules) error {
	t.Helper()
	clock := new(ManualClock)
	g := begin(t, Config{Clock: clock, HeaderFaults: true}, r)
	ctx := t.Context()
	clock.Advance(time.Minute)
	read := g.do(ctx, http.MethodGet, "/time", "")
	bound := fmt.Sprint(read.now() + 1000)
	answer, err := g.started(ctx, "flight", func() got {
		return g.charge(ctx, "k", 5, HeaderNotAfter, bound, HeaderFault, "none; hold_before=flight")
	})
	if err != nil {
		return err
	}
	clock.Advance(time.Second) // equality has passed
	looked := g.find(ctx, "k")
	g.Open("flight")
	late := <-answer
	tally := g.Ledger().Tally(Charge, "k")
	switch {
	case read.now() != 60_000 || looked.now() != 61_000 || looked.Finding != NotObserved:
		return fmt.Errorf("time %d, inquiry %+v", read.now(), looked)
	case tally.Effects != 0 || late.status != 402 || late.Final:
		return fmt.Errorf("after the instant had passed: %+v, %+v", tally, late)
	}
	if out := g.charge(ctx, "k", 5, HeaderNotAfter, "61001"); out.status != 201 {
		return fmt.Errorf("before the instant: %+v", out)
	}
	return nil
}

// The twin knows only its keys.
func TestChargeIsRefundedOnce(t *testing.T) {
	holds(t, refundedOnce, func(r *rules) {
		r.commit = func(p *Provider, q *ask) *outcome {
			if q.Op == Refund {
				delete(p.ledger.refunded, chargeNumber(q.charge))
			}
			return commitLocked(p, q)
		}
	})
}

func refundedOnce(t *testing.T, r rules) error {
	t.Helper()
	g := begin(t, Config{}, r)
	ctx := t.Context()
	g.charge(ctx, "other", 1)
	charge := g.charge(ctx, "k", 5)
	refund := g.refund(ctx, "k", charge.ID)
	replay, other := g.refund(ctx, "k", charge.ID), g.refund(ctx, "l", charge.ID)
	unknown := g.refund(ctx, "m", "ch_99")
	effects := g.Ledger().Effects()
	switch {
	case refund.status != 201 || refund.Amount != 5 || refund.Charge != charge.ID || replay.ID != refund.ID:
		return fmt.Errorf("refund %+v, replay %+v", refund, replay)
	case other.status != 402 || !other.Final || unknown.status != 402 || unknown.Final:
		return fmt.Errorf("under another key %+v, of none %+v", other, unknown)
	case len(effects) != 3 || effects[2].Op != Refund || effects[2].Charge != "ch_2" || effects[2].Order != 3:
		return fmt.Errorf("%+v", effects)
	}
	return nil
}

// The twin calls delivered what it has tried to write.
func TestDeliveryLogIsNotOptimistic(t *testing.T) {
	holds(t, delivery, func(r *rules) {
		r.write = func(w http.ResponseWriter, _ *http.Request, status int, body []byte) Delivery {
			w.WriteHeader(status)
			_, _ = w.Write(body) // whatever became of it
			return Written
		}
	})
}

func delivery(t *testing.T, r rules) error {
	t.Helper()
	inner := r.write
	r.write = func(w http.ResponseWriter, req *http.Request, status int, body []byte) Delivery {
		<-req.Context().Done() // the server has seen that the client has gone
		return inner(w, req, status, body)
	}
	g := begin(t, Config{HeaderFaults: true}, r)
	ctx, leave := context.WithCancel(t.Context())
	answer, err := g.started(ctx, "made", func() got { return g.charge(ctx, "k", 5, HeaderFault, "none; hold_after=made") })
	if err != nil {
		leave()
		return err
	}
	leave()
	g.Open("made")
	if out := <-answer; out.err == nil {
		return fmt.Errorf("%+v", out)
	}
	if err := awaitDelivery(t.Context(), g.Ledger(), "k", func(e Entry) bool { return len(e.Answers) == 1 && e.Answers[0].Delivery != Sending }); err != nil {
		return err
	}
	e := g.Ledger().Entry(Charge, "k")
	if e.Answers[0].Delivery != NotWritten || e.Tally.Effects != 1 || e.Knowable(Sending) {
		return fmt.Errorf("the client had gone: %+v", e)
	}
	return nil
}

// The twin says "in progress" before it has compared the bodies.
func TestOtherBodyIsSeenFirst(t *testing.T) {
	holds(t, otherBody, func(r *rules) {
		r.arrive = func(p *Provider, q *ask) *outcome {
			p.stepLocked(q)
			if q.acc.inProgress > 0 {
				return problem(http.StatusConflict, "a request with this key is in progress")
			}
			return arriveLocked(p, q)
		}
	})
}

func otherBody(t *testing.T, r rules) error {
	t.Helper()
	g := begin(t, Config{HeaderFaults: true}, r)
	ctx := t.Context()
	answer, err := g.started(ctx, "in", func() got { return g.charge(ctx, "k", 5, HeaderFault, "none; hold_before=in") })
	if err != nil {
		return err
	}
	other, same := g.charge(ctx, "k", 6), g.charge(ctx, "k", 5)
	g.Open("in")
	first := <-answer
	after := g.charge(ctx, "k", 6)
	if other.status != 422 || same.status != 409 || first.status != 201 || after.status != 422 || g.Ledger().Tally(Charge, "k").Effects != 1 {
		return fmt.Errorf("in progress: other body %d, same %d; first %d; afterwards other body %d", other.status, same.status, first.status, after.status)
	}
	return nil
}
