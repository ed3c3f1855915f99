package drill

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/internal/flakypay"
	"github.com/tenure-go/tenure/operation"
)

// payVariant is one way in which a drill about payments is played.
type payVariant struct {
	want  model.PayWant
	shows string
	play  func(ctx context.Context, p *payRound) error
}

// payDrill is what a run of a drill about payments has beside its processes: a provider on a socket of this process's own, and the operations of the store.
type payDrill struct {
	*conductor
	variants []payVariant
	provider *flakypay.Provider
	base     string // URL of the provider
	folder   string // of its ledger
	served   chan error
	ops      operation.Backend
	client   *payClient // of this process: somebody at a desk

	mu       sync.Mutex
	played   []model.PayRound
	couriers map[string]func(context.Context, flakypay.Notice) error // by key: where a late answer is brought
}

// playPayments plays each variant as often as there are rounds, in one run, and has them judged.
func playPayments(ctx context.Context, o Options, sc Scenario) (r Report, err error) {
	d := &payDrill{variants: payVariants(sc.Name, o.Unfenced), couriers: map[string]func(context.Context, flakypay.Notice) error{}}
	all := o
	all.Rounds = o.Rounds * len(d.variants)
	sc.play = d.play
	if d.conductor, err = prepare(ctx, all, sc); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, d.cleanUp(ctx)) }()
	if err := d.open(ctx); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.folder)) }()
	defer func() { err = errors.Join(err, d.settle(ctx)) }()
	d.playAll(ctx)
	if err := d.end(); err != nil || ctx.Err() != nil {
		return r, err
	}
	demand := model.PayDemand{Rounds: o.Rounds, Played: d.counted()}
	for _, v := range d.variants {
		demand.Variants = append(demand.Variants, v.want)
	}
	verdict, err := askJudge(ctx, o.Self, question{place: o.place(), Run: d.run, Payments: &payQuestion{Ledger: d.ledger(), Demand: demand}})
	r = reportOf(verdict, d.failures)
	r.ReplayedRounds = len(d.void)
	if r.Payments = verdict.Payments; r.Payments != nil {
		for i := range r.Payments.Variants {
			r.Payments.Variants[i].Shows = d.variants[i].shows
		}
	}
	return r, err
}

func (d *payDrill) ledger() string { return filepath.Join(d.folder, "ledger") }

// open starts the provider.
func (d *payDrill) open(ctx context.Context) (err error) {
	if d.ops, err = operationsOf(d.store); err != nil {
		return err
	}
	if d.folder, err = os.MkdirTemp("", "tenure-drill-ledger-"); err != nil {
		return fmt.Errorf("%w: a folder for the ledger: %w", ErrProcess, err)
	}
	d.provider, err = flakypay.New(flakypay.Config{Closes: true, HeaderFaults: true, File: d.ledger(), Webhook: d.bring})
	if err == nil {
		var listener net.Listener
		if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err == nil {
			d.base = "http://" + listener.Addr().String()
			d.served = make(chan error, 1)
			go func() { d.served <- d.provider.Serve(context.WithoutCancel(ctx), listener) }()
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w: the provider: %w", ErrProcess, err), os.RemoveAll(d.folder))
	}
	d.client = newPayClient(d.base)
	return nil
}

// end ends the provider; its ledger is complete then.
func (d *payDrill) end() error {
	d.client.close()
	return errors.Join(d.provider.Close(), <-d.served)
}

// bring gives a late answer to whoever expects it; to nobody, where nobody does.
func (d *payDrill) bring(ctx context.Context, n flakypay.Notice) error {
	d.mu.Lock()
	courier := d.couriers[n.Key]
	d.mu.Unlock()
	if courier == nil {
		return nil
	}
	return courier(ctx, n)
}

// counted are the rounds that were played, and whether they count.
func (d *payDrill) counted() []model.PayRound {
	for i := range d.played {
		for _, n := range d.void {
			d.played[i].Void = d.played[i].Void || d.played[i].Round == n
		}
	}
	slices.SortFunc(d.played, func(a, b model.PayRound) int { return a.Round - b.Round })
	return d.played
}

// play plays a round of the variant whose turn it is.
func (d *payDrill) play(ctx context.Context, r *round) error {
	at := (r.turn - 1) % len(d.variants)
	d.mu.Lock()
	d.played = append(d.played, model.PayRound{Round: r.n, Variant: at})
	d.mu.Unlock()
	p := &payRound{round: r, d: d, id: opName(d.run, r.n, nameCharge)}
	if err := d.variants[at].play(ctx, p); err != nil {
		return fmt.Errorf("%s: %w", d.variants[at].want.Name, err)
	}
	return nil
}

// settle decides what the run has left undecided, so that nobody finds it waiting for an operator: its processes are gone, and it was nothing but a drill.
func (d *payDrill) settle(ctx context.Context) error {
	const why = "a drill has left it behind"
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpBound)
	defer cancel()
	wished := operation.ListRequest{Prefix: namesOf(d.run), States: []operation.State{operation.Succeeded}, Wished: true}
	err := eachOperation(ctx, d.ops, wished, func(rec *operation.Record) error { return d.unwish(ctx, rec) })
	for err == nil {
		left := 0
		states := []operation.State{operation.Pending, operation.Attempting, operation.Uncertain}
		err = eachOperation(ctx, d.ops, operation.ListRequest{Prefix: namesOf(d.run), States: states}, func(rec *operation.Record) (err error) {
			switch rec.State {
			case operation.Pending:
				_, err = d.ops.Cancel(ctx, rec.ID, why)
			case operation.Uncertain:
				_, err = d.ops.Resolve(ctx, operation.Verdict{ID: rec.ID, State: operation.Failed, Reason: why})
			default:
				left++
				_, err = d.ops.Expire(ctx, operation.MaxBatch)
			}
			if errors.Is(err, operation.ErrDecided) || errors.Is(err, operation.ErrUndecided) { // it has moved meanwhile
				left, err = left+1, nil
			}
			return err
		})
		if err != nil || left == 0 {
			return err
		}
		if !sleep(ctx, settlePause*50) {
			return fmt.Errorf("%d operations of the drill are left undecided until a reconciler ends their claims: %w", left, context.Cause(ctx))
		}
	}
	return err
}

// unwish has a charge that was not compensated count as if it had been: by an operation that will be cancelled.
func (d *payDrill) unwish(ctx context.Context, rec *operation.Record) error {
	f := payFacts{run: d.run}
	round, _, ok := f.split(rec.ID)
	if !ok {
		return nil
	}
	req, err := refundOf(d.run, round)
	if err != nil {
		return err
	}
	if _, err := d.ops.Submit(ctx, req); err != nil {
		return err
	}
	_, err = d.ops.Undone(ctx, rec.ID, req.ID)
	return err
}

// payScenarios are the drills about payments.
func payScenarios() []Scenario {
	one := func(name, summary, shows, unfenced string) Scenario {
		stops := !slices.Contains([]string{"lost-effect-response", "late-response", "refund-of-uncertain"}, name)
		return Scenario{Name: name, Summary: summary, Shows: shows, Unfenced: unfenced, Rounds: 2, Payments: true, atOnce: 6, needsStop: stops, whole: playPayments}
	}
	return []Scenario{
		one("lost-effect-response", "a provider charges, and its answer is lost",
			"The worker's request has its effect at the provider, whose connection is reset before the answer. The operation is uncertain, not failed: the reconciler asks the provider by the operation's key, in one variant with an inquiry that closes the key, and finds the charge. The ledger of the provider has exactly one.",
			"The worker takes an error for a failure and tries again under a key of the attempt's own. The ledger has two charges."),
		one("late-response", "the answer comes by a webhook, when the worker has given up",
			"The worker's wait ends by its timeout, and the operation is uncertain. Then the provider's webhook comes and is recorded as evidence (Respond): that settles it. Where an operator had decided meanwhile that it failed, the decision stays, and the answer is a conflict that is listed.",
			"Two ways without a record: the late answer is dropped by those who took the timeout for a failure and charge again, and it overwrites what was decided and acted on."),
		one("stale-completion", "a worker is stopped before it completes, and another attempt has begun",
			"The worker has had its effect and is stopped by SIGSTOP before the transaction that writes its row of the business's table and completes the attempt. Its claim ends, and another worker's attempt succeeds, fails, or is at work. The first goes on and sends its transaction without asking: CompleteTx refuses it, the row is rolled back with it, and what the newer attempt found stays.",
			"The row is written by a plain UPDATE, which asks for no attempt: it is committed over what the newer attempt wrote."),
		one("crash-between-record-and-send", "a worker is killed when its attempt is recorded, and before it sends",
			"SIGKILL. Nobody can tell that from a request that was sent, so when the claim ends the operation is uncertain, and within a second it is in other hands. Where the provider knows the key another attempt is made under it; where not, an inquiry closes the key, and then it has failed for certain. The ledger has one charge, or none and a closed key.",
			"The worker records that it is done before it sends. The operation has succeeded, and the ledger has no charge."),
		one("crash-between-effect-and-record", "a worker is killed when the provider has charged, and before it records that",
			"SIGKILL. When the claim ends the operation is uncertain, and within a second it is in other hands: another attempt under the same key is told of the charge that there is, or an inquiry finds it. The ledger has exactly one.",
			"The next attempt has a key of its own. The ledger has two charges."),
		one("cancel-race", "somebody cancels, beside an attempt at each of its points",
			"Before a worker has begun, and where the attempt turns out not to have been sent, the operation is cancelled and nothing is charged. At each point from which it may have had its effect, cancelling is a wish: the charge stands, and is refunded exactly once, by an operation of its own. After the decision it is refused.",
			"Cancelling is an UPDATE of a row that the worker looked at before it began. It says cancelled, and the ledger has the charge and no refund."),
		one("two-reconcilers", "a reconciler is stopped for longer than its lease, and another takes over",
			"The first has asked the provider, or is about to compensate, and is stopped by SIGSTOP until the second owns the name and has finished. It goes on and says what it knew: that decides nothing, and compensates nothing a second time. The provider was asked no more than a few times.",
			"What an inquiry says is the decision, and compensation is a transfer of one's own: the late reconciler turns a success into a failure, and gives the money back again."),
		one("refund-of-uncertain", "a refund is asked for while it is not known whether the charge happened",
			"The charge is on its way and the worker's wait is over. The refund is refused until the charge is decided; then it is done once, or refused for good where an inquiry has closed the key before the charge arrived.",
			"Somebody gives the money back at once. The charge never arrives: it was given for nothing."),
	}
}

const (
	payTTL  = time.Second     // of claims that are to end
	longTTL = 5 * time.Second // of those that are not
	payWait = 400 * time.Millisecond
	payLong = 5 * time.Second // a timeout that is not to pass
	payLeft = time.Second     // after the end of a killed worker's claim, until its operation is in other hands
)
