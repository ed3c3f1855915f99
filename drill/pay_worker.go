package drill

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/internal/flakypay"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
	worklib "github.com/tenure-go/tenure/worker"
)

// rolePayer is a process that runs operations by the library's worker, or reconciles them by the library's reconciler, or both.
const rolePayer role = "payer"

// point is where a payer stops itself, once.
type point string

const (
	pointBeforeSend  point = "before-send"  // the attempt is recorded, and nothing was sent
	pointAfterEffect point = "after-effect" // the provider has answered, and nothing of that is recorded
	pointAsked       point = "asked"        // an inquiry was answered, and nothing of that is recorded
	pointUndoing     point = "undoing"      // a compensation is about to be submitted
	pointNone        point = ""             // it does not stop
)

// manner is what a payer does that the library would not.
type manner string

const (
	mannerNewKey    manner = "new-key"    // an error is a failure, and the next attempt has a key of its own
	mannerDoneFirst manner = "done-first" // it records that it is done before it sends
	mannerPlainRow  manner = "plain-row"  // it writes its row, and whether its attempt is the current one is not asked
	mannerLooksOnce manner = "looks-once" // it looks in the table whether it was cancelled, before it begins, and that is all
	mannerFirstWord manner = "first-word" // what an inquiry says is the decision: what was not observed has failed
	mannerPaysBack  manner = "pays-back"  // it gives money back at once, by a transfer of its own
)

// payerSetup says what a payer does.
type payerSetup struct {
	Work      bool `json:"work,omitempty"`
	Reconcile bool `json:"reconcile,omitempty"`
	Leased    bool `json:"leased,omitempty"` // it reconciles only while it owns the round's name

	TTL     int64  `json:"ttl_ms"`     // of claims and sessions
	Timeout int64  `json:"timeout_ms"` // of an attempt
	Fault   string `json:"fault,omitempty"`
	Inquire string `json:"inquire,omitempty"` // "find" or "close"
	Window  bool   `json:"window,omitempty"`  // the provider knows the key for ever
	Undoes  bool   `json:"undoes,omitempty"`
	Local   bool   `json:"local,omitempty"` // the only effect is the row of the business's table
	Row     bool   `json:"row,omitempty"`   // it completes in a transaction with such a row
	Refuses bool   `json:"refuses,omitempty"`
	Unsent  bool   `json:"unsent,omitempty"` // once it goes on, it does not send
	Stop    point  `json:"stop,omitempty"`
	Last    bool   `json:"last,omitempty"` // once it goes on, it takes nothing more up
	Manner  manner `json:"manner,omitempty"`
}

// payer is a worker that pays.
type payer struct {
	*worker
	pay     payerSetup
	ops     *gatedOps
	client  *payClient
	sent    atomic.Bool // a charge of the round, if only in part
	halted  atomic.Bool
	said    chan struct{} // closed when what it said late has been said
	saidOne sync.Once
}

// servePayer carries out what the conductor orders: to begin, and to tell when it has said what it says late.
func (w *worker) servePayer(ctx context.Context, in *bufio.Scanner) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p := &payer{worker: w, pay: *w.Pay, client: newPayClient(w.Service), said: make(chan struct{})}
	defer p.client.close()
	defer w.close(ctx)
	if err := p.open(ctx); err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for {
		var c command
		if err := receive(in, &c); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		answer := reply{ID: c.ID}
		switch c.Op {
		case opServe:
		case opDo:
			if err := p.begin(ctx, &running); err != nil {
				answer.Err = err.Error()
			}
		case opFinish:
			<-p.said // the conductor kills whoever does not come to it
		default:
			answer.Err = fmt.Sprintf("%v: unknown order %q", ErrProcess, c.Op)
		}
		if err := w.out.send(answer); err != nil {
			return err
		}
	}
}

// open opens store and table.
func (p *payer) open(ctx context.Context) (err error) {
	w := p.worker
	if w.now, _, err = clock.Kernel(); err != nil {
		return err
	}
	w.net = &faultyStore{now: w.now, faults: map[string]fault{}, times: map[string]int{}, told: func(heldTill) error { return nil }}
	w.site = w.place.site()
	if w.res, err = openResource(w.place, w.Run); err != nil {
		return err
	}
	if err := w.openStore(ctx); err != nil {
		return err
	}
	p.ops = &gatedOps{gate: &w.net.gate, last: p.pay.Last, said: p.saidIt}
	p.ops.to, err = operationsOf(w.store)
	return err
}

func (p *payer) saidIt() { p.saidOne.Do(func() { close(p.said) }) }

// begin starts what the payer is there for.
func (p *payer) begin(ctx context.Context, running *sync.WaitGroup) error {
	handlers := []*worklib.Entry{worklib.Handle(p.charges()), worklib.Handle(p.refunds())}
	ttl := ofMillis(p.pay.TTL)
	if p.pay.Work {
		work, err := worklib.New(p.ops, worklib.Options{Label: p.Name, TTL: ttl, Margin: ttl / 5, Poll: payPoll, Grace: payGrace}, handlers...)
		if err != nil {
			return err
		}
		running.Go(func() { _ = work.Run(ctx) }) // the process is killed before it would tell
	}
	if !p.pay.Reconcile {
		return nil
	}
	o := worklib.ReconcilerOptions{}
	if p.pay.Leased {
		o.Leases, o.Name, o.Session = p.net, nameOf(p.Run, p.Round), lease.Options{Owner: p.Name, TTL: ttl, Margin: ttl / 5}
	}
	desk, err := worklib.NewReconciler(p.ops, o, handlers...)
	if err != nil {
		return err
	}
	running.Go(func() { _ = desk.Run(ctx) }) // as above
	return nil
}

const (
	payPoll  = 50 * time.Millisecond
	payGrace = 5 * time.Second
	payBase  = 50 * time.Millisecond
	payMost  = 500 * time.Millisecond
)

// charges is the handler of the charge, as anybody would write it but for the points and the manners.
func (p *payer) charges() worklib.Handler[chargeRequest, chargeResult] {
	h := worklib.Handler[chargeRequest, chargeResult]{Kind: opName(p.Run, p.Round, nameCharge), Perform: p.charge, Timeout: ofMillis(p.pay.Timeout),
		Base: payBase, Most: payMost, AskBase: payMost, AskMost: 2 * payMost, Local: p.pay.Local}
	if p.pay.Window {
		h.Window = operation.Forever
	}
	if p.pay.Inquire != "" {
		h.Inquire = p.inquire
	}
	if p.pay.Undoes {
		h.Compensate = func(string, chargeRequest, chargeResult) (operation.SubmitRequest, error) { return p.undo() }
	}
	return h
}

// refunds is the handler of the refund: its key is the operation's, so that it may be tried as often as it takes.
func (p *payer) refunds() worklib.Handler[refundRequest, refundResult] {
	return worklib.Handler[refundRequest, refundResult]{Kind: opName(p.Run, p.Round, nameRefund), Timeout: payGrace, Base: payBase, Most: payMost, Window: operation.Forever,
		Perform: func(ctx context.Context, a *worklib.Attempt, req refundRequest) (refundResult, error) {
			rec, err := p.ops.Get(ctx, req.Of)
			if err != nil {
				return refundResult{}, &budget.Error{Class: budget.NotSent, Err: err}
			}
			charge, err := operation.Kind[chargeRequest, chargeResult]{Name: rec.Kind}.Outcome(rec)
			if err != nil {
				return refundResult{}, &budget.Error{Class: budget.NotSent, Err: err}
			}
			return p.client.refund(ctx, charge.Value.Charge, a.Key(), a.Ref().Number)
		}}
}

// charge has the effect.
func (p *payer) charge(ctx context.Context, a *worklib.Attempt, req chargeRequest) (res chargeResult, err error) {
	if p.pay.Manner == mannerLooksOnce {
		if rows, err := p.res.read(ctx, p.Round); err != nil || len(rows) > 0 {
			return res, worklib.Final(&budget.Error{Class: budget.NotSent, Err: errors.Join(errNotWanted, err)})
		}
	}
	if p.pay.Manner == mannerDoneFirst {
		if err := p.row(ctx, a, res, false); err != nil {
			return res, err
		}
	}
	late, err := p.halt(ctx, pointBeforeSend)
	if err != nil || late && p.pay.Unsent {
		return res, &budget.Error{Class: budget.NotSent, Err: errors.Join(errNotWanted, err)}
	}
	if !p.pay.Local {
		if res, err = p.send(ctx, a, req); err != nil {
			return res, err
		}
	}
	if late, err = p.halt(ctx, pointAfterEffect); err != nil {
		return res, err
	}
	if p.pay.Refuses {
		err := worklib.Final(errSoldOut)
		if p.pay.Manner == mannerPlainRow {
			err = errors.Join(p.rowOf(ctx, a, res, model.RowFailed, late), err)
		}
		return res, err
	}
	if p.pay.Row {
		return res, p.row(ctx, a, res, late)
	}
	return res, nil
}

// send charges, under the operation's key.
func (p *payer) send(ctx context.Context, a *worklib.Attempt, req chargeRequest) (chargeResult, error) {
	key, fault := a.Key(), ""
	if a.Key() == opName(p.Run, p.Round, nameCharge) && p.sent.CompareAndSwap(false, true) {
		fault = p.pay.Fault
	}
	if p.pay.Manner == mannerNewKey && a.Ordinal() > 1 {
		key = opName(p.Run, p.Round, nameAgain) + fmt.Sprint(a.Ordinal())
	}
	res, err := p.client.charge(ctx, req.Cents, key, a.Ref().Number, fault)
	if err != nil && p.pay.Manner == mannerNewKey {
		err = &budget.Error{Class: budget.Refused, Again: true, Err: err}
	}
	return res, err
}

// halt stops this process, if that is the point, while no call of it is on its way to the store; see [worker.stopOutsideWrites]. It reports whether it did.
func (p *payer) halt(ctx context.Context, at point) (bool, error) {
	if p.pay.Stop != at || !p.halted.CompareAndSwap(false, true) {
		return false, nil
	}
	ctx = context.WithoutCancel(ctx) // it goes on without asking, and whoever it works for has given it up meanwhile
	p.net.gate.Lock()
	defer p.net.gate.Unlock()
	shut := p.site.traits().stopsOthers
	if shut {
		if err := p.store.Shutdown(ctx); err != nil {
			return false, err
		}
	}
	if err := p.stop(ctx); err != nil {
		return false, err
	}
	if shut {
		if err := p.openStore(ctx); err != nil {
			return false, err
		}
		to, err := operationsOf(p.store)
		if err != nil {
			return false, err
		}
		p.ops.to = to
	}
	p.ops.late.Store(true)
	return true, nil
}

// row completes the attempt in the transaction of a row that says so.
func (p *payer) row(ctx context.Context, a *worklib.Attempt, res chargeResult, late bool) error {
	return p.rowOf(ctx, a, res, model.RowDone, late)
}

// rowOf writes a row and, unless that is left out, completes the attempt with it. Who comes late has its answer recorded.
func (p *payer) rowOf(ctx context.Context, a *worklib.Attempt, res chargeResult, says string, late bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), payLate) // its claim may be over: it does not look
	defer cancel()
	done := a.Completion(res)
	w := writing{round: p.Round, writer: p.Name, element: says, claim: fence.Claim{Token: a.Ref().Number}, late: late}
	err := p.res.inTx(ctx, func(tx *sql.Tx) error {
		if p.pay.Manner != mannerDoneFirst { // who is done first has no row: the record of the operation says it
			if err := p.res.apply(ctx, tx, w); err != nil {
				return err
			}
		}
		if p.pay.Manner == mannerPlainRow {
			return nil
		}
		return completeIn(ctx, p.store, tx, done)
	})
	stale := errors.Is(err, operation.ErrStale)
	if err == nil && p.pay.Manner != mannerPlainRow {
		a.Completed()
	}
	if !late || err != nil && !stale {
		return err
	}
	answer := model.Answer{Round: p.Round, Writer: p.Name, Element: says, Token: w.claim.Token, Late: true, Accepted: err == nil}
	if stale {
		answer.Why = "stale: " + err.Error()
	}
	err = errors.Join(err, p.res.record(ctx, answer))
	p.saidIt()
	return err
}

// inquire asks the provider about the charge.
func (p *payer) inquire(ctx context.Context, rec *operation.Record, _ chargeRequest) (worklib.Finding[chargeResult], error) {
	found := worklib.Finding[chargeResult]{What: operation.NotObserved}
	r, err := p.client.inquire(ctx, rec.ID, p.pay.Inquire == "close")
	if err != nil {
		return found, err
	}
	late, err := p.halt(ctx, pointAsked)
	if err != nil {
		return found, err
	}
	switch r.Finding {
	case flakypay.Found:
		found.What, found.Result = operation.Found, chargeResult{Charge: r.ID}
	case flakypay.KeyClosed:
		found.What, found.Reason = operation.Closed, r.Reason
	case flakypay.NotObserved:
	}
	if p.pay.Manner == mannerFirstWord {
		return found, p.firstWord(ctx, rec, found.What, late)
	}
	return found, nil
}

// firstWord writes what was found as the decision.
func (p *payer) firstWord(ctx context.Context, rec *operation.Record, found operation.Finding, late bool) error {
	says := model.RowDone
	if found != operation.Found {
		says = model.RowFailed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), payLate)
	defer cancel()
	w := writing{round: p.Round, writer: p.Name, element: says, claim: fence.Claim{Token: rec.Current()}}
	err := p.res.inTx(ctx, func(tx *sql.Tx) error { return p.res.apply(ctx, tx, w) })
	if late {
		p.saidIt()
	}
	return err
}

// undo makes the refund.
func (p *payer) undo() (operation.SubmitRequest, error) {
	ctx, cancel := context.WithTimeout(context.Background(), roundBound)
	defer cancel()
	late, err := p.halt(ctx, pointUndoing)
	if err != nil {
		return operation.SubmitRequest{}, err
	}
	if p.pay.Manner == mannerPaysBack {
		_, err := p.client.charge(ctx, 4200, opName(p.Run, p.Round, nameTransfer)+p.Name, 0, "")
		if late {
			p.saidIt()
		}
		return operation.SubmitRequest{}, errors.Join(errByHand, err)
	}
	return refundOf(p.Run, p.Round)
}
