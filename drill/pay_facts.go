package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/flakypay"
	"github.com/tenure-go/tenure/operation"
)

// payQuestion is what the judge of a drill about payments is told: where the provider's ledger is, and what was played.
type payQuestion struct {
	Ledger string          `json:"ledger"` // the file
	Demand model.PayDemand `json:"demand"`
}

// judgePayments reads the ledger, the operations and the table, and judges.
func judgePayments(ctx context.Context, q question) (v model.Verdict, err error) {
	provider, err := flakypay.New(flakypay.Config{Closes: true, File: q.Payments.Ledger}) // which serves nobody: it only reads
	if err != nil {
		return v, fmt.Errorf("reading the ledger: %w", err)
	}
	defer func() { err = errors.Join(err, provider.Close()) }()
	var facts model.PayFacts
	f := &payFacts{PayFacts: &facts, run: q.Run, ledger: provider.Ledger()}
	f.money()
	if err := f.operations(ctx, q); err != nil {
		return v, fmt.Errorf("reading the operations: %w", err)
	}
	res, err := openResource(q.place, q.Run)
	if err != nil {
		return v, err
	}
	defer func() { _ = res.close() }() // it only read
	h, err := res.history(ctx)
	if err != nil {
		return v, fmt.Errorf("reading the table: %w", err)
	}
	facts.Writes, facts.Answers, facts.Events = h.Writes, h.Answers, h.Events
	return model.JudgePayments(facts, q.Payments.Demand), nil
}

// payFacts gathers what is known of a run.
type payFacts struct {
	*model.PayFacts
	run    string
	ledger *flakypay.Ledger
}

// split is the round of an operation or a key, and its name within the round; false: it is of another run.
func (f *payFacts) split(id string) (round int, name string, ok bool) {
	rest, ok := strings.CutPrefix(id, namesOf(f.run))
	number, name, more := strings.Cut(rest, "/")
	round, err := strconv.Atoi(number)
	return round, name, ok && more && err == nil
}

// what says what a key of the provider's books stands for; empty: for something that nobody judges.
func what(op flakypay.Op, name string) string {
	switch {
	case op == flakypay.Refund:
		return model.PayRefund
	case name == nameCharge || strings.HasPrefix(name, nameAgain):
		return model.PayCharge
	case strings.HasPrefix(name, nameTransfer):
		return model.PayTransfer
	}
	return ""
}

// money reads the ledger.
func (f *payFacts) money() {
	for _, t := range f.ledger.Tallies() {
		round, name, ok := f.split(t.Key)
		kind := what(t.Op, name)
		if !ok || kind == "" {
			continue
		}
		e := f.ledger.Entry(t.Op, t.Key)
		for _, one := range e.Effects {
			f.Effects = append(f.Effects, model.Effect{Round: round, Order: one.Order, What: kind})
		}
		for _, r := range e.Requests {
			f.Requests = append(f.Requests, requestOf(r, e.Answers, model.Request{Round: round, What: kind, OtherKey: name != nameCharge && kind == model.PayCharge}))
		}
	}
}

// requestOf says what a request was, and what became of its answer.
func requestOf(r flakypay.Request, answers []flakypay.Answer, q model.Request) model.Request {
	q.Inquiry = r.Verb != flakypay.Make
	if n, err := strconv.ParseInt(r.Attempt, 10, 64); err == nil {
		q.Attempt = fence.Token(n)
	}
	q.Unheard = true
	for _, a := range answers {
		if a.Request != r.Number {
			continue
		}
		q.Effective = q.Effective || a.Means == flakypay.MeansEffect
		if a.Way == flakypay.Connection && a.Delivery != flakypay.NotWritten {
			q.Unheard = false
		}
	}
	return q
}

// operations reads what the store tells of the run's.
func (f *payFacts) operations(ctx context.Context, q question) error {
	store, err := q.site().open(ctx)
	if err != nil {
		return err
	}
	ops, err := operationsOf(store)
	if err == nil {
		err = eachOperation(ctx, ops, operation.ListRequest{Prefix: namesOf(f.run)}, func(rec *operation.Record) error {
			round, name, ok := f.split(rec.ID)
			if !ok || name != nameCharge && name != nameRefund {
				return nil
			}
			o := model.Recorded{Round: round, Name: name, State: rec.State.String(), Conflicts: rec.ConflictCount, Wished: rec.CancelWished, Undone: rec.UndoneBy != ""}
			for _, a := range rec.Attempts {
				o.Known, o.Numbers = append(o.Known, a.Known.String()), append(o.Numbers, a.Number)
			}
			f.Operations = append(f.Operations, o)
			return nil
		})
	}
	if err == nil {
		err = eachOperation(ctx, ops, operation.ListRequest{Prefix: namesOf(f.run), Conflicts: true}, func(rec *operation.Record) error {
			round, name, _ := f.split(rec.ID)
			i := slices.IndexFunc(f.Operations, func(o model.Recorded) bool { return o.Round == round && o.Name == name })
			if i >= 0 {
				f.Operations[i].Listed = true
			}
			return nil
		})
	}
	return errors.Join(err, store.Shutdown(ctx))
}

// eachOperation goes through all that match.
func eachOperation(ctx context.Context, ops operation.Office, req operation.ListRequest, visit func(*operation.Record) error) error {
	req.Limit = operation.MaxList
	for {
		page, err := ops.List(ctx, req)
		if err != nil {
			return err
		}
		for i := range page {
			if err := visit(&page[i]); err != nil {
				return err
			}
		}
		if len(page) < req.Limit {
			return nil
		}
		req.After = page[len(page)-1].ID
	}
}
