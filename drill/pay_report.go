package drill

import (
	"fmt"
	"io"

	"github.com/tenure-go/tenure/drill/model"
)

// writePayments writes what a drill about payments came to, for people.
func (r Report) writePayments(t io.Writer) {
	p := r.Payments
	for _, row := range []struct {
		what  string
		count int
	}{
		{"rounds of each variant", r.Rounds}, {"requests to move money", p.Requests}, {"inquiries", p.Inquiries},
		{"charges", p.Charges}, {"refunds", p.Refunds}, {"transfers", p.Transfers},
		{"refused by the store", p.Refused}, {"conflicts listed", p.Conflicts}, {"rounds with damage", p.DamagedRounds},
	} {
		fmt.Fprintf(t, "%s\t%d\n", row.what, row.count)
	}
	for _, kind := range model.Damages() {
		if n := p.Damage[kind]; n > 0 {
			fmt.Fprintf(t, "  %s\t%d\n", kind, n)
		}
	}
	for _, v := range p.Variants {
		word := "ok"
		if !v.OK {
			word = "NOT ok"
		}
		fmt.Fprintf(t, "%s\t%s: %s\n", v.Name, word, v.Shows)
		fmt.Fprintf(t, "  \t%d charges, %d refunds, damage in %d of %d rounds\n", v.Charges, v.Refunds, v.Damaged, v.Rounds)
	}
	if m := p.Moved; m != nil {
		fmt.Fprintf(t, "in other hands after the claim's end\tp50 %.0f ms, max %.0f ms; within %d ms: %d of %d, before: %d\n",
			float64(m.P50US)/1000, float64(m.MaxUS)/1000, m.WithinMS, m.Within, m.Rounds, m.Early)
	}
	r.writeEnd(t, "what was to go wrong did not")
}
