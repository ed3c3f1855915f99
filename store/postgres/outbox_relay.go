package postgres

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

const claimManyText = `SELECT positions, ids, topics, keys, ordereds, headers, payloads, attempts, ages, remaining, dead, looked, firsts, seen, drawn
	FROM tenure.outbox_claim_many($1::uuid, $2::text, $3::text[], $4::int, $5::int, $6::interval, $7::int, $8::jsonb)`

// claimRow is the result of tenure.outbox_claim_many.
type claimRow struct {
	positions    []int64
	ids          []pgtype.UUID
	topics, keys []string
	ordered      []bool
	headers      [][]byte
	payloads     [][]byte
	attempts     []int32
	ages         []pgtype.Interval
	left         pgtype.Interval
	dead         int
	looked       []string
	firsts       []int64
	seen         *string
	drawn        int64
}

func (r *claimRow) dest() []any {
	return []any{&r.positions, &r.ids, &r.topics, &r.keys, &r.ordered, &r.headers, &r.payloads, &r.attempts, &r.ages, &r.left, &r.dead, &r.looked, &r.firsts, &r.seen, &r.drawn}
}

// Claim is part of [outbox.Store].
func (o *Outbox) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Batch, error) {
	if err := req.Check(); err != nil {
		return outbox.Batch{}, err
	}
	for {
		l := o.hints.begin(time.Now())
		var row claimRow
		err := o.claim(ctx, &req, l.from, &row)
		if err != nil {
			o.hints.reset()
			return outbox.Batch{}, err
		}
		o.listener.left.Store(row.drawn)
		again := o.hints.learn(l, row.looked, row.firsts, text(row.seen), len(row.positions) > 0 || row.dead > 0, time.Now())
		if again && len(row.positions) == 0 && row.dead == 0 { // what has committed late is before the place where this look began
			continue
		}
		return row.batch(req.Claim)
	}
}

func (o *Outbox) claim(ctx context.Context, req *outbox.ClaimRequest, from map[string]int64, row *claimRow) error {
	var hint *string
	if len(from) > 0 {
		text, err := json.Marshal(from)
		if err != nil {
			return &outbox.UnavailableError{Op: "claim", Err: err}
		}
		s := string(text)
		hint = &s
	}
	return o.one(ctx, "claim", req.Claim, row.dest(), claimManyText, uuid(req.Claim), req.Relay, req.Topics, req.Limit, req.Bytes, exact(req.TTL), req.MaxAttempts, hint)
}

// batch makes a batch of what was scanned.
func (r *claimRow) batch(claim fence.ID) (outbox.Batch, error) {
	b := outbox.Batch{Claim: claim, Left: duration(r.left), Dead: r.dead}
	if len(r.positions) == 0 {
		return b, nil
	}
	b.Deliveries = make([]outbox.Delivery, len(r.positions))
	for i := range r.positions {
		headers, err := headersOf(r.headers[i])
		if err != nil {
			return b, &outbox.UnknownError{Op: "claim", Err: err}
		}
		b.Deliveries[i] = outbox.Delivery{
			Message:  outbox.Message{ID: r.ids[i].Bytes, Topic: r.topics[i], Key: r.keys[i], Ordered: r.ordered[i], Headers: headers, Payload: r.payloads[i]},
			Position: r.positions[i], Attempt: int(r.attempts[i]), Age: duration(r.ages[i]),
		}
	}
	return b, nil
}

// Settle is part of [outbox.Store].
func (o *Outbox) Settle(ctx context.Context, req outbox.SettleRequest) (outbox.Settled, error) {
	if err := req.Check(); err != nil {
		return outbox.Settled{}, err
	}
	n := len(req.Verdicts)
	positions := make([]int64, n)
	for i, v := range req.Verdicts {
		positions[i] = v.Position
	}
	args := []any{uuid(req.Claim), positions, nil, nil, nil, nil, req.Relay}
	if slices.ContainsFunc(req.Verdicts, func(v outbox.Verdict) bool { return v.Outcome != outbox.Published }) {
		outcomes, problems, retries, dead := make([]string, n), make([]string, n), make([]pgtype.Interval, n), make([]bool, n)
		for i, v := range req.Verdicts {
			outcomes[i], problems[i], retries[i], dead[i] = v.Outcome.String(), outbox.Text(v.Error), exact(v.RetryIn), v.Dead
		}
		args = []any{uuid(req.Claim), positions, outcomes, problems, retries, dead, req.Relay}
	}
	var done outbox.Settled
	err := o.one(ctx, "settle", req.Claim, []any{&done.Applied, &done.Late},
		`SELECT applied, late FROM tenure.outbox_settle($1::uuid, $2::bigint[], $3::text[], $4::text[], $5::interval[], $6::boolean[], $7::text)`, args...)
	if err != nil {
		return outbox.Settled{}, err
	}
	if len(done.Late) == 0 {
		done.Late = nil
	}
	return done, nil
}
