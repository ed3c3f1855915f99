package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

// messageColumns of tenure.outbox_info.
const messageColumns = `id, topic, key, ordered, headers, payload, bytes, position, state, attempts, relay, claimed, due_in, age, ended, errors`

// infoRow is tenure.outbox_info.
type infoRow struct {
	outbox.Info
	id                       pgtype.UUID
	headers, errors          []byte
	state                    string
	relay                    *string
	claimed, due, age, ended pgtype.Interval
}

func (r *infoRow) dest() []any {
	return []any{&r.id, &r.Topic, &r.Key, &r.Ordered, &r.headers, &r.Payload, &r.Bytes, &r.Position, &r.state, &r.Attempts, &r.relay, &r.claimed, &r.due, &r.age, &r.ended, &r.errors}
}

// read makes an info of what was scanned.
func (r *infoRow) read() (err error) {
	r.ID, r.State, r.Relay = r.id.Bytes, named(r.state, outbox.Pending, outbox.Dead), text(r.relay)
	if r.State == 0 {
		return fmt.Errorf("the message %v is told as %s, which is not of this version of the schema", r.ID, r.state)
	}
	r.Claimed, r.DueIn, r.Age, r.Ended = duration(r.claimed), duration(r.due), duration(r.age), duration(r.ended)
	if r.Headers, err = headersOf(r.headers); err != nil || r.errors == nil {
		return err
	}
	var all []struct {
		Attempt        int
		Relay, Problem string
		AgeUS          int64 `json:"age_us"`
	}
	err = json.Unmarshal(r.errors, &all)
	for _, f := range all {
		r.Errors = append(r.Errors, outbox.Failure{Attempt: f.Attempt, Relay: f.Relay, Text: f.Problem, Age: time.Duration(f.AgeUS) * time.Microsecond})
	}
	return err
}

// List is part of [outbox.Office]. Asked for pending or dead messages alone, it reads those, and what was delivered does not slow it; otherwise it reads all from the given position on, until enough match.
func (o *Outbox) List(ctx context.Context, req outbox.ListRequest) ([]outbox.Info, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	if err := o.store.enter("list"); err != nil {
		return nil, o.store.outboxFailed("list", fence.ID{}, false, err)
	}
	defer o.store.leave()
	all, err := o.list(ctx, &req)
	if err != nil {
		return nil, o.store.outboxFailed("list", fence.ID{}, true, err)
	}
	return all, nil
}

func (o *Outbox) list(ctx context.Context, req *outbox.ListRequest) ([]outbox.Info, error) {
	states := make([]string, len(req.States))
	for i, s := range req.States {
		states[i] = s.String()
	}
	conn, err := o.store.conn(ctx, "list")
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, `SELECT `+messageColumns+` FROM tenure.outbox_list($1::text, $2::text, $3::text[], $4::bigint, $5::int, $6::boolean)`, req.Topic, req.Key, states, req.After, req.Limit, req.Bodies)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []outbox.Info
	for rows.Next() {
		var r infoRow
		if err := rows.Scan(r.dest()...); err != nil {
			return nil, err
		}
		if err := r.read(); err != nil {
			return nil, err
		}
		all = append(all, r.Info)
	}
	return all, rows.Err()
}

// Get is part of [outbox.Office].
func (o *Outbox) Get(ctx context.Context, id fence.ID) (outbox.Info, error) {
	if id.IsZero() {
		return outbox.Info{}, &outbox.NotFoundError{ID: id}
	}
	var r infoRow
	if err := o.one(ctx, "get", id, r.dest(), `SELECT `+messageColumns+` FROM tenure.outbox_get($1::uuid)`, uuid(id)); err != nil {
		return outbox.Info{}, err
	}
	if err := r.read(); err != nil {
		return outbox.Info{}, o.store.outboxFailed("get", id, true, err)
	}
	return r.Info, nil
}

// Topics is part of [outbox.Office]. It counts what is pending, so it takes longer the more that is.
func (o *Outbox) Topics(ctx context.Context, after string) ([]outbox.TopicInfo, error) {
	if err := outbox.CheckAfter(after); err != nil {
		return nil, err
	}
	var names, reasons []string
	var pending, dead []int64
	var oldest []pgtype.Interval
	var paused []bool
	err := o.one(ctx, "topics", fence.ID{}, []any{&names, &pending, &dead, &oldest, &paused, &reasons}, `SELECT coalesce(array_agg(topic ORDER BY o), '{}'), coalesce(array_agg(pending ORDER BY o), '{}'),
		coalesce(array_agg(dead ORDER BY o), '{}'), coalesce(array_agg(oldest ORDER BY o), '{}'), coalesce(array_agg(paused ORDER BY o), '{}'), coalesce(array_agg(coalesce(reason, '') ORDER BY o), '{}')
		FROM tenure.outbox_topics($1::text) WITH ORDINALITY x (topic, pending, dead, oldest, paused, reason, o)`, after)
	if err != nil {
		return nil, err
	}
	all := make([]outbox.TopicInfo, len(names))
	for i, name := range names {
		all[i] = outbox.TopicInfo{Topic: name, Pending: pending[i], Dead: dead[i], Oldest: duration(oldest[i]), Paused: paused[i], Reason: reasons[i]}
	}
	return all, nil
}

// Pause is part of [outbox.Office]. It takes a member of tenure_operator, as everything below.
func (o *Outbox) Pause(ctx context.Context, req outbox.PauseRequest) error {
	if err := req.Check(); err != nil {
		return err
	}
	return o.one(ctx, opPause, fence.ID{}, []any{nil}, `SELECT tenure.outbox_pause($1::text, $2::boolean, $3::text)`, req.Topic, req.Paused, req.Reason)
}

// Retry is part of [outbox.Office].
func (o *Outbox) Retry(ctx context.Context, req outbox.MoveRequest) (int, error) {
	return o.move(ctx, opRetry, `SELECT tenure.outbox_retry($1::uuid[], $2::text, $3::text, $4::bigint, $5::bigint, $6::interval, $7::int)`, &req)
}

// Replay is part of [outbox.Office]. Without ids it reads all from the first position of the range on, until enough match.
func (o *Outbox) Replay(ctx context.Context, req outbox.MoveRequest) (int, error) {
	return o.move(ctx, opReplay, `SELECT tenure.outbox_replay($1::uuid[], $2::text, $3::text, $4::bigint, $5::bigint, $6::interval, $7::int)`, &req)
}

func (o *Outbox) move(ctx context.Context, op, text string, req *outbox.MoveRequest) (n int, err error) {
	if err := req.Check(); err != nil {
		return 0, err
	}
	ids := make([]pgtype.UUID, len(req.IDs))
	for i, id := range req.IDs {
		ids[i] = uuid(id)
	}
	err = o.one(ctx, op, fence.ID{}, []any{&n}, text, ids, req.Topic, req.Key, req.From, req.To, exact(req.Within), req.Limit)
	return n, err
}

// Prune is part of [outbox.Office].
func (o *Outbox) Prune(ctx context.Context, req outbox.PruneRequest) (n int, err error) {
	if err := req.Check(); err != nil {
		return 0, err
	}
	err = o.one(ctx, opPrune, fence.ID{}, []any{&n}, `SELECT tenure.outbox_prune($1::interval, $2::interval, $3::int)`, exact(req.Delivered), exact(req.Dead), req.Limit)
	return n, err
}
