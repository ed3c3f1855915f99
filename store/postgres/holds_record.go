package postgres

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/hold"
)

// holdColumns of tenure.hold_record.
const holdColumns = `outcome, id, actor, items, quantities, ttl, state, remaining, reference, age, ended`

// holdRecord is tenure.hold_record: a hold, and what became of the call.
type holdRecord struct {
	hold.Hold
	outcome string

	id                    pgtype.UUID
	items                 []string
	quantities            []int64
	state                 string
	ttl, left, age, ended pgtype.Interval
	reference             *string
}

func (r *holdRecord) dest() []any {
	return []any{&r.outcome, &r.id, &r.Actor, &r.items, &r.quantities, &r.ttl, &r.state, &r.left, &r.reference, &r.age, &r.ended}
}

// read makes a hold of what was scanned.
func (r *holdRecord) read() error {
	r.ID, r.State = r.id.Bytes, named(r.state, hold.Held, hold.Late)
	if r.State == 0 || len(r.items) != len(r.quantities) {
		return fmt.Errorf("the hold %v is told as %s with %d items, which is not of this version of the schema", r.ID, r.state, len(r.items))
	}
	r.Lines = linesOf(r.items, r.quantities)
	r.TTL, r.Left, r.Age, r.Ended, r.Reference = duration(r.ttl), duration(r.left), duration(r.age), duration(r.ended), text(r.reference)
	return nil
}

func linesOf(items []string, quantities []int64) []hold.Line {
	lines := make([]hold.Line, len(items))
	for i := range items {
		lines[i] = hold.Line{Item: items[i], Quantity: quantities[i]}
	}
	return lines
}
