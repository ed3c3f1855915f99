package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

// laneLines is how many lines a hold may have that is placed with others. A larger one is placed by itself.
const laneLines = 16

// placing is a request that may be handled with others, and its answer.
type placing struct {
	id    fence.ID
	actor string
	lines []hold.Line
	ttl   time.Duration
	taken *hold.TakenError // nil: it was placed
}

// group lets no two requests for one item into a batch: the second of them is decided by what the first has left.
func (p *placing) group() *opGroup[*placing] {
	keys := make([]string, 0, len(p.lines)+1)
	for _, l := range p.lines {
		keys = append(keys, l.Item)
	}
	return &opGroup[*placing]{items: []*placing{p}, keys: append(keys, "\x00"+p.id.String()), done: make(chan struct{})}
}

func (p *placing) answer() (hold.Hold, error) {
	if p.taken != nil {
		return hold.Hold{}, p.taken
	}
	return hold.Hold{ID: p.id, Actor: p.actor, Lines: p.lines, TTL: p.ttl, State: hold.Held, Left: p.ttl}, nil
}

// placeMany places or refuses what can be decided without a wait, and returns what cannot.
func (h *Holds) placeMany(ctx context.Context, all []*placing) (left []int32, err error) {
	n := len(all)
	ids, actors, ttls := make([]pgtype.UUID, n), make([]string, n), make([]pgtype.Interval, n)
	var requests []int32
	var items []string
	var quantities []int64
	for i, p := range all {
		ids[i], actors[i], ttls[i] = uuid(p.id), p.actor, interval0(p.ttl)
		for _, l := range p.lines {
			requests, items, quantities = append(requests, int32(i)+1), append(items, l.Item), append(quantities, l.Quantity) //nolint:gosec // at most MaxBatch
		}
	}
	var refused []int32
	var taken []string
	var wanted, frees []int64
	var nexts []pgtype.Interval
	err = h.store.row(ctx, "place", []any{&left, &refused, &taken, &wanted, &frees, &nexts}, `SELECT left_over, refused, refused_items, wanted, frees, nexts FROM
		tenure.hold_place_many($1::uuid[], $2::text[], $3::interval[], $4::int[], $5::text[], $6::bigint[])`, ids, actors, ttls, requests, items, quantities)
	if err != nil {
		return nil, err
	}
	for k, o := range refused {
		all[o-1].taken = &hold.TakenError{Item: taken[k], Wanted: wanted[k], Free: frees[k], Next: duration(nexts[k])}
	}
	return left, nil
}

// confirming is a confirmation that may be handled with others, and its answer.
type confirming struct {
	id               fence.ID
	actor, reference string
	hold             hold.Hold
}

func (c *confirming) group() *opGroup[*confirming] {
	return &opGroup[*confirming]{items: []*confirming{c}, keys: []string{c.id.String()}, done: make(chan struct{})}
}

// confirmMany confirms what is live and not locked, and returns what it has not.
func (h *Holds) confirmMany(ctx context.Context, all []*confirming) (left []int32, err error) {
	n := len(all)
	ids, actors, references := make([]pgtype.UUID, n), make([]string, n), make([]string, n)
	for i, c := range all {
		ids[i], actors[i], references[i] = uuid(c.id), c.actor, c.reference
	}
	conn, err := h.store.conn(ctx, "confirm")
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, `SELECT o, items, quantities, ttl, age FROM tenure.hold_confirm_many($1::uuid[], $2::text[], $3::text[])`, ids, actors, references)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var o int32
		var items []string
		var quantities []int64
		var ttl, age pgtype.Interval
		if err := rows.Scan(&o, &items, &quantities, &ttl, &age); err != nil {
			return nil, err
		}
		c := all[o-1]
		c.hold = hold.Hold{ID: c.id, Actor: c.actor, Lines: linesOf(items, quantities), TTL: duration(ttl), State: hold.Confirmed, Reference: c.reference, Age: duration(age)}
	}
	rows.Close() // the server's final word: the commit
	if err := rows.Err(); err != nil {
		return nil, err
	}
	for i, c := range all {
		if c.hold.State == 0 {
			left = append(left, int32(i)+1) //nolint:gosec // at most MaxBatch
		}
	}
	return left, replicated(conn.Conn())
}
