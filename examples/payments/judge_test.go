package payments_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/examples/payments"
	"github.com/tenure-go/tenure/internal/flakypay"
	"github.com/tenure-go/tenure/operation"
)

// verdict is what a judge finds, of an arm's whole run.
type verdict struct {
	wrong    []string // what must not be; the first maxWrong of them
	wrongs   int
	byState  map[operation.State]int
	requests int64
	effects  int64
	refunds  int
	attempts int
	sure     int // decided though no acknowledged answer says so: by a closed key, an instant, or an end of attempts
	open     []operation.Record
}

const maxWrong = 20

func (v *verdict) complain(rec *operation.Record, t flakypay.Tally, format string, args ...any) {
	v.wrongs++
	if len(v.wrong) < maxWrong {
		v.wrong = append(v.wrong, fmt.Sprintf("%s is %v: %s\n\trecord %s\n\tledger %+v", rec.ID, rec.State, fmt.Sprintf(format, args...), attemptsOf(rec), t))
	}
}

func attemptsOf(rec *operation.Record) string {
	text := fmt.Sprintf("wished %t, step %v, reason %q;", rec.CancelWished, rec.Step, rec.Reason)
	for _, a := range rec.Attempts {
		text += fmt.Sprintf(" %d %v %q;", a.Number, a.Known, a.Reason)
	}
	return text
}

// judge compares every record with what has really happened, and with what the provider could tell. It knows nothing of how the records came about.
func judge(a arm, ledger *flakypay.Ledger, records map[string]operation.Record, withdrawn []string) *verdict {
	v := &verdict{byState: map[operation.State]int{}}
	ids := map[string]flakypay.Effect{}
	for _, e := range ledger.Effects() {
		ids[string(e.Op)+" "+e.Key] = e
	}
	for id := range records {
		rec := records[id]
		t := ledger.Tally(flakypay.Op(rec.Kind), id)
		v.byState[rec.State]++
		v.requests += t.Requests
		v.effects += t.Effects
		v.attempts += len(rec.Attempts)
		if rec.Kind == payments.Refunds().Name {
			v.refunds++
		}
		v.compare(&rec, t, ids[rec.Kind+" "+id])
		v.known(a, &rec, t)
	}
	for _, t := range ledger.Tallies() {
		if _, ok := records[t.Key]; !ok {
			v.complain(&operation.Record{Operation: operation.Operation{ID: t.Key}}, t, "the provider was asked for what nobody submitted")
		}
	}
	for _, id := range withdrawn {
		rec := records[id]
		if _, ok := records[payments.RefundID(id)]; !ok && rec.State == operation.Succeeded {
			v.complain(&rec, flakypay.Tally{}, "it was withdrawn, and nobody gives the money back")
		}
	}
	slices.SortFunc(v.open, func(a, b operation.Record) int { return int(b.Age - a.Age) })
	return v
}

// compare holds a record to what has happened.
func (v *verdict) compare(rec *operation.Record, t flakypay.Tally, effect flakypay.Effect) {
	happened := t.Effects > 0
	switch {
	case t.Effects > 1:
		v.complain(rec, t, "%d effects", t.Effects)
	case rec.State.Decided() && happened != (rec.State == operation.Succeeded):
		v.complain(rec, t, "decided wrongly")
	case rec.ConflictCount > 0:
		v.complain(rec, t, "%d conflicts: %+v", rec.ConflictCount, rec.Conflicts)
	case t.Requests > sent(rec):
		v.complain(rec, t, "the provider has read more requests than attempts were recorded")
	}
	if rec.State == operation.Succeeded {
		var res struct {
			Charge, Refund string
			Amount         int64
		}
		if err := json.Unmarshal(rec.Result, &res); err != nil || res.Charge+res.Refund != effect.ID || res.Amount != effect.Amount {
			v.complain(rec, t, "its result is %s, and the effect %+v (%v)", rec.Result, effect, err)
		}
	}
}

// known holds a record to what could be known.
func (v *verdict) known(a arm, rec *operation.Record, t flakypay.Tally) {
	told := knowable(rec, t)
	if rec.State.Decided() {
		if !told {
			v.sure++
		}
		if !told && a.forgets {
			v.complain(rec, t, "it is decided, and no answer that was delivered says so")
		}
		return
	}
	v.open = append(v.open, *rec)
	switch {
	case rec.State != operation.Uncertain:
		v.complain(rec, t, "work is left at the end")
	case told:
		v.complain(rec, t, "undecided although an answer that was delivered decides it")
	case !a.mayStayOpen(rec, t):
		v.complain(rec, t, "undecided although the provider's terms decide it")
	case rec.Age <= 0:
		v.complain(rec, t, "listed without its age")
	}
}

// acknowledge tells the ledger of each answer that a process has had and the store has recorded. It returns how many of those that were had are not recorded.
func acknowledge(ledger *flakypay.Ledger, records map[string]operation.Record, all []receipt) (lost []receipt, err error) {
	for _, r := range all {
		rec := records[r.Key]
		switch {
		case r.Attempt == 0 && !(r.Finding == flakypay.Found && rec.State == operation.Succeeded || r.Finding == flakypay.KeyClosed && rec.State == operation.Failed):
			continue // it decided nothing
		case r.Attempt != 0 && !recorded(&rec, r):
			lost = append(lost, r)
			continue
		}
		if err := ledger.Acknowledge(r.Op, r.Key, r.Answer); err != nil {
			return lost, fmt.Errorf("answer %d of %s: %w", r.Answer, r.Key, err)
		}
	}
	return lost, nil
}

// recorded reports whether an attempt's record says what its answer said.
func recorded(rec *operation.Record, r receipt) bool {
	want := operation.Refused
	if r.Status == 201 {
		want = operation.Effective
	}
	return slices.ContainsFunc(rec.Attempts, func(a operation.Attempt) bool { return int64(a.Number) == r.Attempt && a.Known == want })
}

// oldest are the ages of what is open, the oldest first.
func (v *verdict) oldest(n int) (text string) {
	for _, rec := range v.open[:min(n, len(v.open))] {
		text += fmt.Sprintf("  %-24s %8v old, %d attempts, %d inquiries, next %v\n", rec.ID, rec.Age.Round(time.Millisecond), len(rec.Attempts), rec.Inquiries, rec.Step)
	}
	return text
}
