package model

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// soundPay is a round in which a worker was killed after its first attempt had been charged, and the second was told so; then it was refunded as wished.
func soundPay() (PayFacts, PayWant) {
	f := PayFacts{
		Effects: []Effect{{Round: 1, Order: 1, What: PayCharge}, {Round: 1, Order: 2, What: PayRefund}},
		Requests: []Request{{Round: 1, What: PayCharge, Attempt: 4, Effective: true, Unheard: true}, {Round: 1, What: PayCharge, Inquiry: true},
			{Round: 1, What: PayCharge, Attempt: 6, Effective: true}, {Round: 1, What: PayRefund, Attempt: 9, Effective: true}},
		Operations: []Recorded{{Round: 1, Name: PayCharge, State: "succeeded", Known: []string{"no answer", "effective"}, Numbers: []fence.Token{4, 6}, Wished: true, Undone: true},
			{Round: 1, Name: PayRefund, State: "succeeded", Known: []string{"effective"}, Numbers: []fence.Token{9}}},
		Writes:  []Write{{Round: 1, Writer: "B", Element: RowDone, Token: 6}},
		Answers: []Answer{{Round: 1, Writer: "A", Token: 4, Late: true, Why: "stale: roll back"}},
		Events:  []Event{{Round: 1, Token: 4, What: Killed}, {Round: 1, Token: 4, What: ClaimTill, At: time.Second}, {Round: 1, Token: 4, What: Moved, At: 1100 * time.Millisecond}},
	}
	w := PayWant{Name: "v", Saw: []What{Killed}, Lost: true, State: "succeeded", Known: []string{"no answer", "effective"}, Charges: 1, Refunds: 1, Rows: []string{"B"},
		Refused: []string{"stale"}, Asked: 1, MostAsked: 2, Moved: time.Second}
	return f, w
}

func judged(f PayFacts, w PayWant) Verdict {
	return JudgePayments(f, PayDemand{Rounds: 1, Played: []PayRound{{Round: 1}}, Variants: []PayWant{w}})
}

func TestPaymentsAreSound(t *testing.T) {
	t.Parallel()
	v := judged(soundPay())
	p := v.Payments
	if !v.OK || p.Charges != 1 || p.Refunds != 1 || p.Inquiries != 1 || p.Requests != 3 || p.Refused != 1 || p.Moved == nil || p.Moved.Within != 1 || p.Judged() != 1 {
		t.Errorf("%+v, %+v", v, p)
	}
	f, w := soundPay()
	f.Operations[0].Known, f.Operations[0].Numbers = append([]string{notSent}, f.Operations[0].Known...), append([]fence.Token{3}, f.Operations[0].Numbers...)
	if v := judged(f, w); !v.OK {
		t.Errorf("with an attempt that never left: %+v", v)
	}
	w.Known = []string{notSent, notSent}
	if v := judged(f, w); v.OK {
		t.Errorf("with one that was to be there: %+v", v)
	}
}

// TestEachDamage: it is found whatever else is as it should be, and where it was promised the round is ok.
func TestEachDamage(t *testing.T) {
	t.Parallel()
	for kind, hurt := range map[Damage]func(*PayFacts, *PayWant){
		ChargedTwice: func(f *PayFacts, _ *PayWant) {
			f.Effects = append(f.Effects, Effect{Round: 1, Order: 3, What: PayCharge})
		},
		DoneUncharged: func(f *PayFacts, _ *PayWant) { f.Effects = nil },
		ChargedUnrecorded: func(f *PayFacts, _ *PayWant) {
			f.Operations[0].State, f.Effects = "failed", f.Effects[:1]
		},
		PaidForNothing: func(f *PayFacts, _ *PayWant) {
			f.Effects = append(f.Effects, Effect{Round: 1, Order: 3, What: PayTransfer})
		},
		StaleRow: func(f *PayFacts, _ *PayWant) {
			f.Writes = append(f.Writes, Write{Round: 1, Writer: "A", Element: RowDone, Token: 4})
		},
		DecidedTwice: func(f *PayFacts, w *PayWant) {
			w.Table = true
			f.Writes = []Write{{Round: 1, Writer: "B", Element: RowFailed, Token: 6}, {Round: 1, Writer: "C", Element: RowDone, Token: 6}}
		},
	} {
		f, w := soundPay()
		hurt(&f, &w)
		if v := judged(f, w); v.OK || v.Payments.Damage[kind] != 1 || v.Payments.DamagedRounds != 1 {
			t.Errorf("%s: %+v, %+v", kind, v, v.Payments)
		}
		w.Damage, w.Moved = kind, 0
		if v := judged(f, w); !v.OK {
			t.Errorf("%s as promised: %+v", kind, v)
		}
		f, w = soundPay()
		w.Damage = kind
		if v := judged(f, w); v.OK {
			t.Errorf("%s was promised, and was not there: %+v", kind, v)
		}
	}
	if len(Damages()) != 6 {
		t.Error("a kind of damage is not tried here")
	}
}

// TestPaidBackBeforeTheCharge: the order in which money moved counts, not only how much.
func TestPaidBackBeforeTheCharge(t *testing.T) {
	t.Parallel()
	f, w := soundPay()
	f.Effects = []Effect{{Round: 1, Order: 1, What: PayTransfer}, {Round: 1, Order: 2, What: PayCharge}}
	if v := judged(f, w); v.OK || v.Payments.Damage[PaidForNothing] != 1 {
		t.Errorf("%+v, %+v", v, v.Payments)
	}
}

// TestRecordedAsNotIsNoDamageWhereItIsListed: a conflict that is listed is what an operator acts on.
func TestRecordedAsNotIsNoDamageWhereItIsListed(t *testing.T) {
	t.Parallel()
	f, w := soundPay()
	f.Operations = f.Operations[:1]
	f.Operations[0].State, f.Operations[0].Conflicts, f.Operations[0].Listed, f.Effects = "failed", 1, true, f.Effects[:1]
	w.State, w.Conflicts, w.Refunds = "failed", 1, 0
	if v := judged(f, w); !v.OK || v.Payments.Conflicts != 1 {
		t.Errorf("%+v", v)
	}
	f.Operations[0].Listed = false
	if v := judged(f, w); v.OK || v.Payments.Damage[ChargedUnrecorded] != 1 {
		t.Errorf("%+v", v)
	}
}

// TestEachPromise: a round is held to every part of it.
func TestEachPromise(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(*PayFacts, *PayWant){
		"the charge is":                        func(_ *PayFacts, w *PayWant) { w.State = "failed" },
		"what is known of its attempts":        func(f *PayFacts, _ *PayWant) { f.Operations[0].Known[0] = "refused" },
		"each refused":                         func(_ *PayFacts, w *PayWant) { w.EachKnown = "refused" },
		"charges: 1, want 2":                   func(_ *PayFacts, w *PayWant) { w.Charges = 2 },
		"refunds: 0, want 1":                   func(f *PayFacts, _ *PayWant) { f.Effects = f.Effects[:1] },
		"transfers":                            func(f *PayFacts, _ *PayWant) { f.Effects[1].What = PayTransfer },
		"conflicts":                            func(f *PayFacts, _ *PayWant) { f.Operations[0].Conflicts = 1 },
		"rows of the table are":                func(f *PayFacts, _ *PayWant) { f.Writes[0].Writer = "A" },
		"refusals":                             func(f *PayFacts, _ *PayWant) { f.Answers[0].Why = "busy" },
		"inquiries: 0":                         func(f *PayFacts, _ *PayWant) { f.Requests[1].Inquiry = false },
		"inquiries: 3":                         func(f *PayFacts, _ *PayWant) { f.Requests = append(f.Requests, f.Requests[1], f.Requests[1]) },
		"a request under a key of its own":     func(f *PayFacts, _ *PayWant) { f.Requests[2].OtherKey = true },
		"the refund is":                        func(f *PayFacts, _ *PayWant) { f.Operations[1].State = "pending" },
		"an operation that refunds":            func(f *PayFacts, _ *PayWant) { f.Operations = f.Operations[:1] },
		"it is not known when the claim ended": func(f *PayFacts, _ *PayWant) { f.Events = f.Events[:2] },
		"0 rounds of 1 were played":            nil,
	} {
		f, w := soundPay()
		d := PayDemand{Rounds: 1, Played: []PayRound{{Round: 1, Void: change == nil}}}
		if change != nil {
			change(&f, &w)
		}
		d.Variants = []PayWant{w}
		if v := JudgePayments(f, d); v.OK || !strings.Contains(strings.Join(v.Problems, "\n"), says) {
			t.Errorf("%s: %+v", says, v)
		}
	}
}

// TestMovedInTime: none before the claim's end, and all but one in a hundred within the bound.
func TestMovedInTime(t *testing.T) {
	t.Parallel()
	for at, ok := range map[time.Duration]bool{time.Second - 1: false, time.Second: true, 2 * time.Second: true, 2*time.Second + 1: true} {
		f, w := soundPay()
		f.Events[2].At = at
		if v := judged(f, w); v.OK != ok {
			t.Errorf("%v: %+v, %+v", at, v, v.Payments.Moved)
		}
	}
	if late := moves([]time.Duration{2, 3}, 1); late.soon() {
		t.Errorf("two that are late: %+v", late)
	}
}

// TestInvalidPayments: a round in which what was to go wrong did not is invalid; one that does not count must have done no damage.
func TestInvalidPayments(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*PayFacts, *PayWant){
		"not killed":    func(f *PayFacts, _ *PayWant) { f.Events = f.Events[1:] },
		"answered":      func(f *PayFacts, _ *PayWant) { f.Requests[0].Unheard = false },
		"not charged":   func(f *PayFacts, _ *PayWant) { f.Requests[0].Effective = false },
		"no attempt":    func(f *PayFacts, _ *PayWant) { f.Operations[0].Numbers, f.Operations[0].Known = nil, nil },
		"no operation":  func(f *PayFacts, _ *PayWant) { f.Operations = f.Operations[1:] },
		"sent":          func(_ *PayFacts, w *PayWant) { w.Lost, w.Unsent = false, true },
		"unseen wishes": func(_ *PayFacts, w *PayWant) { w.Saw = append(w.Saw, Wished) },
	} {
		f, w := soundPay()
		change(&f, &w)
		if v := judged(f, w); v.OK || !slices.Equal(v.InvalidRounds, []int{1}) {
			t.Errorf("%s: %+v", name, v)
		}
	}
	f, w := soundPay()
	f.Effects = append(f.Effects, Effect{Round: 1, Order: 3, What: PayCharge})
	v := JudgePayments(f, PayDemand{Rounds: 1, Played: []PayRound{{Round: 1, Void: true}}, Variants: []PayWant{w}})
	if v.OK || !strings.Contains(strings.Join(v.Problems, "\n"), "it was given up, and did damage") {
		t.Errorf("%+v", v)
	}
	if v := JudgePayments(PayFacts{}, PayDemand{}); v.OK {
		t.Error("nothing was demanded, and that is ok")
	}
}
