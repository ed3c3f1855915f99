package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/operation"
)

// List is part of [operation.Office]. It reads the operations that match, not all that there are, where it is asked for what is undecided, has conflicts, or whose cancelling was wished for.
func (o *Operations) List(ctx context.Context, req operation.ListRequest) ([]operation.Record, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	states := make([]string, len(req.States))
	for i, s := range req.States {
		states[i] = s.String()
	}
	return o.all(ctx, "list", `SELECT `+recordColumns+` FROM tenure.op_list($1::text[], $2, $3, $4, $5::int, $6::boolean, $7::boolean, $8::boolean)`,
		states, req.Kind, req.Prefix, req.After, req.Limit, req.Conflicts, req.Wished, req.Bodies)
}

// Resolve is part of [operation.Office]. It takes a member of tenure_operator.
func (o *Operations) Resolve(ctx context.Context, v operation.Verdict) (operation.Record, error) {
	if err := v.Check(); err != nil {
		return operation.Record{}, err
	}
	rec, err := o.call(ctx, opResolve, v.ID, `SELECT `+recordColumns+` FROM tenure.op_resolve($1, $2, $3, $4::bytea)`, v.ID, v.State.String(), v.Reason, v.Result)
	return rec.Record, err
}

// Prune is part of [operation.Office]. It takes a member of tenure_operator. Operations whose rows are locked at this moment are left for the next call.
func (o *Operations) Prune(ctx context.Context, req operation.PruneRequest) (p operation.Pruned, err error) {
	if err := req.Check(); err != nil {
		return p, err
	}
	err = o.one(ctx, opPrune, []any{&p.Bodies, &p.Records, &p.Forgotten}, `SELECT bodies, records, forgotten FROM tenure.op_prune($1::interval, $2::interval, $3::interval, $4::int)`,
		stage(req.Bodies), stage(req.Records), stage(req.Forget), req.Limit)
	return p, err
}

// stage is NULL for one that is left out.
func stage(age time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: max(age.Microseconds(), 1), Valid: age > 0}
}

// Stats is part of [operation.Office].
func (o *Operations) Stats(ctx context.Context) ([]operation.Stat, error) {
	var kinds []string
	var states []*string
	var counts, stuck []int64
	var oldest []pgtype.Interval
	err := o.one(ctx, "stats", []any{&kinds, &states, &counts, &oldest, &stuck},
		`SELECT coalesce(array_agg(kind), '{}'), coalesce(array_agg(state), '{}'), coalesce(array_agg(count), '{}'), coalesce(array_agg(oldest), '{}'), coalesce(array_agg(stuck), '{}') FROM tenure.op_stats()`)
	if err != nil {
		return nil, err
	}
	all := make([]operation.Stat, len(kinds))
	for i := range all {
		all[i] = operation.Stat{Kind: kinds[i], State: stateOf(text(states[i])), Count: int(counts[i]), Oldest: duration(oldest[i]), Stuck: int(stuck[i])}
	}
	return all, nil
}
