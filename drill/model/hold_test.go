package model

import (
	"strings"
	"testing"
)

// soundSale is a round in which a sale came late, and another one was made.
func soundSale() (SaleFacts, SaleWant) {
	f := SaleFacts{
		Sales:   []SaleRow{{Round: 1, Hold: "2", Buyer: "bob", Reference: "b"}},
		Holds:   []SaleHold{{Round: 1, ID: "1", Actor: "ann", State: "late", Reference: "a"}, {Round: 1, ID: "2", Actor: "bob", State: "confirmed", Reference: "b"}},
		Items:   []SaleItem{{Round: 1, Sold: 1}},
		Answers: []Answer{{Round: 1, Writer: "B", Element: "b", Accepted: true, Why: "confirmed"}, {Round: 1, Writer: "A", Element: "a", Late: true, Why: "late"}},
		Events:  []Event{{Round: 1, Token: 1, What: Stopped}},
	}
	w := SaleWant{Name: "v", Saw: []What{Stopped}, Late: []string{"A"}, Buyer: "bob", Paid: "b", Holds: map[string]string{"ann": "late a", "bob": "confirmed b"}, Told: map[string]string{"A": "late"}}
	return f, w
}

func judgedSale(f SaleFacts, w SaleWant) Verdict {
	return JudgeSales(f, SaleDemand{Rounds: 1, Played: []PayRound{{Round: 1}}, Variants: []SaleWant{w}})
}

func TestSalesAreSound(t *testing.T) {
	t.Parallel()
	v := judgedSale(soundSale())
	s := v.Sales
	if !v.OK || s.Sales != 1 || s.Confirmed != 1 || s.Late != 1 || s.LateSent != 1 || s.LateSold != 0 || s.DamagedRounds != 0 || s.Judged() != 1 {
		t.Errorf("%+v, %+v", v, s)
	}
}

// TestEachDamageOfSales: it is found whatever else is as it should be, and where it was promised the round is ok.
func TestEachDamageOfSales(t *testing.T) {
	t.Parallel()
	for kind, hurt := range map[Damage]func(*SaleFacts){
		SoldTwice: func(f *SaleFacts) {
			f.Sales = append(f.Sales, SaleRow{Round: 1, Hold: "1", Buyer: "ann", Reference: "a"})
		},
		SaleTwice:  func(f *SaleFacts) { f.Sales = append(f.Sales, f.Sales[0]) },
		SoldUnheld: func(f *SaleFacts) { f.Holds[1].State = "expired" },
		Unwritten:  func(f *SaleFacts) { f.Sales = nil },
	} {
		f, w := soundSale()
		hurt(&f)
		if v := judgedSale(f, w); v.OK || v.Sales.Damage[kind] != 1 || v.Sales.DamagedRounds != 1 || v.Sales.Variants[0].OK {
			t.Errorf("%s is not found: %+v, %+v", kind, v, v.Sales)
		}
		w.Damage = kind
		if v := judgedSale(f, w); !v.OK {
			t.Errorf("%s was promised: %+v", kind, v)
		}
		f, _ = soundSale()
		if v := judgedSale(f, w); v.OK {
			t.Errorf("%s was promised, and is not there: %+v", kind, v)
		}
	}
}

// TestSalesThatAreNotAsPromised: without damage, a round must come to exactly what was promised, and what was to go wrong must have.
func TestSalesThatAreNotAsPromised(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(*SaleFacts, *SaleWant){
		"want one sale":      func(_ *SaleFacts, w *SaleWant) { w.Buyer = "ann" },
		"its one seat":       func(f *SaleFacts, _ *SaleWant) { f.Items[0].Sold = 0 },
		"the holds are":      func(f *SaleFacts, _ *SaleWant) { f.Holds[0].Reference = "" },
		"A was told":         func(f *SaleFacts, _ *SaleWant) { f.Answers[1].Why = "" },
		"0 rounds of 1 were": func(f *SaleFacts, w *SaleWant) { f.Sales, w.Name = append(f.Sales, f.Sales[0]), "void" },
	} {
		f, w := soundSale()
		change(&f, &w)
		v := JudgeSales(f, SaleDemand{Rounds: 1, Played: []PayRound{{Round: 1, Void: w.Name == "void"}}, Variants: []SaleWant{w}})
		if v.OK || !strings.Contains(strings.Join(v.Problems, "\n"), says) {
			t.Errorf("%q: %+v", says, v.Problems)
		}
	}
	for what, change := range map[string]func(*SaleFacts){
		"nobody was stopped":              func(f *SaleFacts) { f.Events = nil },
		"the late sale was not sent":      func(f *SaleFacts) { f.Answers = f.Answers[:1] },
		"it was not sent to the resource": func(f *SaleFacts) { f.Answers[1].Unsent = true },
	} {
		f, w := soundSale()
		change(&f)
		if v := judgedSale(f, w); v.OK || len(v.InvalidRounds) != 1 {
			t.Errorf("%s: %+v", what, v)
		}
	}
	if v := JudgeSales(SaleFacts{}, SaleDemand{}); v.OK {
		t.Error("nothing was demanded, and that is ok")
	}
}
