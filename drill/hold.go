package drill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

// saleVariant is one way in which a drill is played that is about holds.
type saleVariant struct {
	want  model.SaleWant
	shows string
	play  func(ctx context.Context, p *saleRound) error
}

// saleDrill is what a run of a drill about holds has beside its processes.
type saleDrill struct {
	*conductor
	variants []saleVariant
	holds    holdBackend

	mu     sync.Mutex
	played []model.PayRound
}

// playSales plays each variant as often as there are rounds, in one run, and has them judged.
func playSales(ctx context.Context, o Options, sc Scenario) (r Report, err error) {
	d := &saleDrill{variants: saleVariants(sc.Name, o)}
	all := o
	all.Rounds = o.Rounds * len(d.variants)
	sc.play, sc.arm = d.play, saleTables
	if d.conductor, err = prepare(ctx, all, sc); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, d.cleanUp(ctx)) }()
	if d.holds, err = holdsOf(d.store); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, d.settle(ctx)) }()
	d.playAll(ctx)
	if ctx.Err() != nil {
		return r, nil
	}
	demand := model.SaleDemand{Rounds: o.Rounds, Played: d.counted()}
	for _, v := range d.variants {
		demand.Variants = append(demand.Variants, v.want)
	}
	verdict, err := askJudge(ctx, o.Self, question{place: o.place(), Run: d.run, Sales: &demand})
	r = reportOf(verdict, d.failures)
	r.ReplayedRounds = len(d.void)
	if r.Sales = verdict.Sales; r.Sales != nil {
		for i := range r.Sales.Variants {
			r.Sales.Variants[i].Shows = d.variants[i].shows
		}
	}
	return r, err
}

// play plays a round of the variant whose turn it is, on a seat of its own.
func (d *saleDrill) play(ctx context.Context, r *round) error {
	at := (r.turn - 1) % len(d.variants)
	d.mu.Lock()
	d.played = append(d.played, model.PayRound{Round: r.n, Variant: at})
	d.mu.Unlock()
	if !d.o.Unfenced {
		if err := d.holds.Stock(ctx, []hold.Item{{Name: seatOf(d.run, r.n), Quantity: 1}}); err != nil {
			return err
		}
	}
	if err := d.variants[at].play(ctx, &saleRound{round: r, d: d}); err != nil {
		return fmt.Errorf("%s: %w", d.variants[at].want.Name, err)
	}
	return nil
}

// counted are the rounds that were played, and whether they count.
func (d *saleDrill) counted() []model.PayRound {
	for i := range d.played {
		d.played[i].Void = slices.Contains(d.void, d.played[i].Round)
	}
	slices.SortFunc(d.played, func(a, b model.PayRound) int { return a.Round - b.Round })
	return d.played
}

func (d *saleDrill) get(ctx context.Context, id string) (hold.Hold, error) {
	parsed, err := fence.ParseID(id)
	if err != nil {
		return hold.Hold{}, err
	}
	return d.holds.Get(ctx, parsed)
}

// settle releases what the run has left held.
func (d *saleDrill) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpBound)
	defer cancel()
	for _, round := range d.played {
		left, err := d.holds.List(ctx, hold.ListRequest{Item: seatOf(d.run, round.Round), States: []hold.State{hold.Held}, Limit: hold.MaxList})
		if err != nil {
			return err
		}
		for _, h := range left {
			if _, err := d.holds.Release(ctx, h.ID, h.Actor); err != nil && !errors.Is(err, hold.ErrOver) {
				return err
			}
		}
	}
	return nil
}

// writeSales writes what a drill about holds came to, for people.
func (r Report) writeSales(t io.Writer) {
	s := r.Sales
	for _, row := range []struct {
		what  string
		count int
	}{
		{"rounds of each variant", r.Rounds}, {"sales in the table", s.Sales}, {"holds that were confirmed", s.Confirmed}, {"holds that were paid for late", s.Late},
		{"sales sent late", s.LateSent}, {"  written to the table", s.LateSold}, {"rounds with damage", s.DamagedRounds},
	} {
		fmt.Fprintf(t, "%s\t%d\n", row.what, row.count)
	}
	for _, kind := range model.SaleDamages() {
		if n := s.Damage[kind]; n > 0 {
			fmt.Fprintf(t, "  %s\t%d\n", kind, n)
		}
	}
	for _, v := range s.Variants {
		word := "ok"
		if !v.OK {
			word = "NOT ok"
		}
		fmt.Fprintf(t, "%s\t%s: %s\n", v.Name, word, v.Shows)
		fmt.Fprintf(t, "  \t%d sales, damage in %d of %d rounds\n", v.Sales, v.Damaged, v.Rounds)
	}
	r.writeEnd(t, "a late sale was not sent")
}

// holdScenarios are the drills about holds.
func holdScenarios() []Scenario {
	one := func(name, summary, shows, unfenced string) Scenario {
		return Scenario{Name: name, Summary: summary, Shows: shows, Unfenced: unfenced, Rounds: 3, Sales: true, atOnce: 6, needsStop: true, whole: playSales}
	}
	return []Scenario{
		one("expired-hold", "a sale is stopped between its check and its write, and its hold expires",
			"The resource is a table of sales of the business's own. A seller has a hold on the only seat, looks, is told that it is live, and is stopped by SIGSTOP. The hold's time passes, the seat is placed and sold again, and the first seller goes on and sends its sale without asking: it is late. It writes no sale, the payment is recorded so that it can be given back, and the table has one sale. On PostgreSQL also stopped inside the sale's transaction, which had confirmed in time: whoever wants the seat is told after a second that somebody is in the middle of a sale, and the sale stands.",
			"Holds are a table of the application's own, with an expiry: SELECT the expiry, then UPDATE the seat. Both sell it."),
		one("double-confirm", "two processes confirm one hold, the first of them stopped in between",
			"A seller has looked and is stopped by SIGSTOP; another process confirms the same hold and writes the sale. The first goes on and sends its own. For the same payment it is told that this is sold, and writes nothing; for another payment it is refused, and that one can be given back. The table has one sale.",
			"Both have read the expiry, and each writes a sale: one payment has two, or one seat has two payments."),
		one("lost-confirm-reply", "a sale is committed, and whoever asked for it never learns that",
			"A seller is killed when its transaction is committed, before it has told anybody. Another process, which knows the payment alone, repeats the sale: it is told that this is sold, and the sale stands once. Where the hold had expired, and the seat was sold to somebody else, the repetition is late as the first was, and the payment is recorded once.",
			"No reply is taken for a failure, and the sale is written again."),
	}
}
