package drill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/lease"
)

// saleRound is one round of a drill about holds. A is the seller that is late or is lost, B another one, C the one that repeats for A.
type saleRound struct {
	*round
	d *saleDrill
}

const (
	saleShort = 700 * time.Millisecond // of holds that are to expire
	saleLong  = 10 * time.Minute       // of those that are not
	buyerA    = "ann"
	buyerB    = "bob"
	chargeA   = "charge-A"
	chargeB   = "charge-B"
)

// saleVariants are the variants of a drill about holds.
func saleVariants(name string, o Options) []saleVariant {
	switch name {
	case "expired-hold":
		return expiredVariants(o)
	case "double-confirm":
		return doubleVariants(o)
	case "lost-confirm-reply":
		return lostReplyVariants(o)
	}
	return nil
}

func expiredVariants(o Options) []saleVariant {
	stopped := []model.What{model.Stopped, model.Continued}
	if o.Unfenced {
		return []saleVariant{{shows: "the slow sale has read the expiry, and writes", play: playExpired,
			want: model.SaleWant{Name: "own-table", Damage: model.SoldTwice, Saw: stopped, Late: []string{"A"}}}}
	}
	all := []saleVariant{{shows: "the slow sale comes late, and its payment is recorded", play: playExpired,
		want: model.SaleWant{Name: "checked", Saw: stopped, Late: []string{"A"}, Buyer: buyerB, Paid: chargeB, Told: map[string]string{"A": "late"},
			Holds: map[string]string{buyerA: "late " + chargeA, buyerB: "confirmed " + chargeB}}}}
	if o.URL != "" { // who is stopped inside a transaction on a file stops everybody
		all = append(all, saleVariant{shows: "the slow sale has confirmed in time: the new place waits, is told so, and places nothing", play: playInsideSale,
			want: model.SaleWant{Name: "inside", Saw: stopped, Late: []string{"A"}, Buyer: buyerA, Paid: chargeA,
				Told: map[string]string{"A": "confirmed", "B": "in the middle of a sale"}, Holds: map[string]string{buyerA: "confirmed " + chargeA}}})
	}
	return all
}

// seller starts a process and waits until it is ready.
func (p *saleRound) seller(ctx context.Context, name string) (*process, error) {
	s := &sellerSetup{}
	if p.c.o.Unfenced {
		s.Manner = mannerNaive
	}
	proc, err := launch(p.c.o.Self, setup{place: p.c.o.place(), Run: p.c.run, Name: name, Round: p.n, Role: roleSeller, Sell: s})
	if err != nil {
		return nil, err
	}
	p.procs = append(p.procs, proc)
	return proc, steps(ctx, proc, command{Op: opServe})
}

// sellers starts several.
func (p *saleRound) sellers(ctx context.Context, names ...string) ([]*process, error) {
	var all []*process
	for _, name := range names {
		proc, err := p.seller(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, proc)
	}
	return all, nil
}

// place has proc hold the seat for a buyer, and returns the hold's id.
func (p *saleRound) place(ctx context.Context, proc *process, buyer string, ttl time.Duration) (string, error) {
	id := lease.NewID().String()
	r, err := proc.call(ctx, command{Op: opPlace, Sale: &saleOrder{Hold: id, Buyer: buyer, TTL: millis(ttl)}})
	if err == nil && r.Told != hold.Held.String() {
		err = fmt.Errorf("%w: the place was refused: %s", errOtherwise, r.Told)
	}
	return id, err
}

func (p *saleRound) sell(ctx context.Context, proc *process, o saleOrder) error {
	return steps(ctx, proc, command{Op: opSell, Sale: &o})
}

// stopped has proc sell until it stops where it is to.
func (p *saleRound) stopped(ctx context.Context, proc *process, o saleOrder) (<-chan reply, error) {
	answer, err := proc.order(command{Op: opSell, Sale: &o})
	if err == nil {
		err = proc.awaitStopped(ctx, answer)
	}
	if err == nil {
		err = p.c.probe(ctx)
	}
	if err != nil {
		return nil, err
	}
	return answer, p.event(ctx, model.Stopped)
}

func (p *saleRound) event(ctx context.Context, what model.What) error {
	return p.c.res.saw(ctx, model.Event{Round: p.n, Token: 1, What: what, At: p.c.now()})
}

// goOn continues a stopped process, and waits for what it comes to.
func (p *saleRound) goOn(ctx context.Context, proc *process, answer <-chan reply) error {
	if err := p.event(ctx, model.Continued); err != nil {
		return err
	}
	p.sent = true
	if err := resume(proc.cmd.Process.Pid); err != nil {
		return proc.gone("continuing", err)
	}
	_, err := proc.await(ctx, opSell, answer)
	return err
}

// passed waits until the time of a hold of saleShort has passed, by the store's clock.
func (p *saleRound) passed(ctx context.Context, id string) error {
	if p.c.o.Unfenced {
		if !sleep(ctx, saleShort) { // of the clock that all processes share
			return context.Cause(ctx)
		}
		return nil
	}
	return waiting(ctx, "the end of a hold", func() (bool, error) {
		h, err := p.d.get(ctx, id)
		return err == nil && h.State == hold.Expired, err
	})
}

// playExpired stops a sale between its check and its write, until the hold has expired and the seat is sold to somebody else.
func playExpired(ctx context.Context, p *saleRound) error {
	procs, err := p.sellers(ctx, "A", "B")
	if err != nil {
		return err
	}
	a, b := procs[0], procs[1]
	first, err := p.place(ctx, a, buyerA, saleShort)
	if err != nil {
		return err
	}
	answer, err := p.stopped(ctx, a, saleOrder{Hold: first, Buyer: buyerA, Reference: chargeA, Stop: pointChecked})
	if err != nil {
		return err
	}
	if err := p.passed(ctx, first); err != nil {
		return err
	}
	second, err := p.place(ctx, b, buyerB, saleLong)
	if err != nil {
		return err
	}
	return errors.Join(p.sell(ctx, b, saleOrder{Hold: second, Buyer: buyerB, Reference: chargeB}), p.goOn(ctx, a, answer))
}

// playInsideSale stops a sale inside its transaction until the time of the hold has passed, and somebody else wants the seat, then and afterwards.
func playInsideSale(ctx context.Context, p *saleRound) error {
	procs, err := p.sellers(ctx, "A", "B")
	if err != nil {
		return err
	}
	a, b := procs[0], procs[1]
	first, err := p.place(ctx, a, buyerA, saleShort)
	if err != nil {
		return err
	}
	answer, err := p.stopped(ctx, a, saleOrder{Hold: first, Buyer: buyerA, Reference: chargeA, Stop: pointInside, Late: true})
	if err != nil {
		return err
	}
	if err := p.passed(ctx, first); err != nil {
		return err
	}
	_, during := p.place(ctx, b, buyerB, saleLong)
	err = p.goOn(ctx, a, answer)
	_, after := p.place(ctx, b, buyerB, saleLong)
	for _, refused := range []error{during, after} {
		if !errors.Is(refused, errOtherwise) {
			err = errors.Join(err, fmt.Errorf("%w: B has placed over a sale: %w", ErrProcess, refused))
		}
	}
	return err
}

func doubleVariants(o Options) []saleVariant {
	stopped := []model.What{model.Stopped, model.Continued}
	late := []string{"A"}
	if o.Unfenced {
		return []saleVariant{
			{shows: "both have read the expiry, and both write the sale", play: playDouble(chargeA),
				want: model.SaleWant{Name: "own-table-same", Damage: model.SaleTwice, Saw: stopped, Late: late}},
			{shows: "the same for two payments", play: playDouble(chargeB),
				want: model.SaleWant{Name: "own-table-other", Damage: model.SoldTwice, Saw: stopped, Late: late}},
		}
	}
	want := func(name, paid, told string) model.SaleWant {
		return model.SaleWant{Name: name, Saw: stopped, Late: late, Buyer: buyerA, Paid: paid, Told: map[string]string{"A": told}, Holds: map[string]string{buyerA: "confirmed " + paid}}
	}
	return []saleVariant{
		{shows: "the second is told that it is sold for this payment, and writes nothing", play: playDouble(chargeA), want: want("same-reference", chargeA, "confirmed")},
		{shows: "the second is told that it is sold for another payment", play: playDouble(chargeB), want: want("other-reference", chargeB, "another reference")},
	}
}

// playDouble stops a sale between its check and its write, until another process has sold under the same hold, for a payment.
func playDouble(paid string) func(ctx context.Context, p *saleRound) error {
	return func(ctx context.Context, p *saleRound) error {
		procs, err := p.sellers(ctx, "A", "B")
		if err != nil {
			return err
		}
		a, b := procs[0], procs[1]
		id, err := p.place(ctx, a, buyerA, saleLong)
		if err != nil {
			return err
		}
		answer, err := p.stopped(ctx, a, saleOrder{Hold: id, Buyer: buyerA, Reference: chargeA, Stop: pointChecked})
		if err != nil {
			return err
		}
		return errors.Join(p.sell(ctx, b, saleOrder{Hold: id, Buyer: buyerA, Reference: paid}), p.goOn(ctx, a, answer))
	}
}

func lostReplyVariants(o Options) []saleVariant {
	killed := []model.What{model.Killed}
	again := []string{"C"}
	if o.Unfenced {
		return []saleVariant{{shows: "no reply is a failure, and the sale is written again", play: playLostReply(false),
			want: model.SaleWant{Name: "own-table", Damage: model.SaleTwice, Saw: killed, Late: again}}}
	}
	return []saleVariant{
		{shows: "the repetition is told that it is sold, and writes nothing", play: playLostReply(false),
			want: model.SaleWant{Name: "sold", Saw: killed, Late: again, Buyer: buyerA, Paid: chargeA, Told: map[string]string{"C": "confirmed"}, Holds: map[string]string{buyerA: "confirmed " + chargeA}}},
		{shows: "the repetition of a late one is late, and the payment is recorded once", play: playLostReply(true),
			want: model.SaleWant{Name: "late", Saw: killed, Late: again, Buyer: buyerB, Paid: chargeB, Told: map[string]string{"C": "late"},
				Holds: map[string]string{buyerA: "late " + chargeA, buyerB: "confirmed " + chargeB}}},
	}
}

// playLostReply kills a seller when its transaction is committed, before it has told anybody, and has another one repeat the sale. If it is late, the seat was sold to somebody else before.
func playLostReply(late bool) func(ctx context.Context, p *saleRound) error {
	return func(ctx context.Context, p *saleRound) error {
		procs, err := p.sellers(ctx, "A", "B", "C")
		if err != nil {
			return err
		}
		a, b, c := procs[0], procs[1], procs[2]
		ttl := saleLong
		if late {
			ttl = saleShort
		}
		first, err := p.place(ctx, a, buyerA, ttl)
		if err != nil {
			return err
		}
		if late {
			if err := p.passed(ctx, first); err != nil {
				return err
			}
			second, err := p.place(ctx, b, buyerB, saleLong)
			if err != nil {
				return err
			}
			if err := p.sell(ctx, b, saleOrder{Hold: second, Buyer: buyerB, Reference: chargeB}); err != nil {
				return err
			}
		}
		o := saleOrder{Hold: first, Buyer: buyerA, Reference: chargeA, Stop: pointCommitted, Again: late}
		if _, err := p.stopped(ctx, a, o); err != nil {
			return err
		}
		a.kill()
		p.sent = true
		return errors.Join(p.event(ctx, model.Killed), p.sell(ctx, c, saleOrder{Hold: first, Buyer: buyerA, Reference: chargeA, Again: true, Late: true}))
	}
}
