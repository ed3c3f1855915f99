package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
)

// Outbox keeps messages in the database of a [Store], by the functions outbox_* of its schema. [Outbox.AppendTx] and [Outbox.AppendSQL] write them in the transaction of what they tell. Safe for concurrent use.
//
// A claim begins its look where this process knows that nothing is left before: rows that an old snapshot keeps from being cleaned away are not read each time. What commits late is before that place, and is looked for when its
// transaction has ended, and every few seconds in any case; see [hints].
type Outbox struct {
	store    *Store
	hints    hints
	listener listener
}

var (
	_ outbox.Store  = (*Outbox)(nil)
	_ outbox.Office = (*Outbox)(nil)
	_ outbox.Waker  = (*Outbox)(nil)
)

// Outbox are the messages of the store's database: always the same value. It ends with the store.
func (s *Store) Outbox() *Outbox { return s.outbox }

func newOutbox(s *Store) *Outbox {
	waits, end := context.WithCancel(s.ctx)
	return &Outbox{store: s, listener: listener{store: s, ctx: waits, end: end, bound: listenBound, probe: listenProbe, gate: make(chan struct{}, 1)}}
}

// Guarantees is part of [outbox.Store]. What was told survives a failover as far as commits do.
func (o *Outbox) Guarantees() outbox.Guarantees {
	return outbox.Guarantees{Store: "postgres", Durable: true, InTransaction: true}
}

const (
	appendText     = `SELECT tenure.outbox_append($1::text, $2::bytea, $3::text, $4::boolean, $5::jsonb, $6::uuid)`
	appendManyText = `SELECT tenure.outbox_append_many($1::text[], $2::bytea[], $3::text[], $4::boolean[], $5::jsonb[], $6::uuid[]) IS NULL`
)

// appending is a call that appends.
type appending struct {
	ids  []fence.ID
	text string
	args []any
}

// newAppending checks messages and gives an id to each that has none.
func newAppending(messages []outbox.Message) (*appending, error) {
	if err := outbox.CheckAppend(messages); err != nil {
		return nil, err
	}
	n := len(messages)
	a := &appending{ids: make([]fence.ID, n), text: appendManyText}
	topics, payloads, keys, ordered, heads, ids := make([]string, n), make([][]byte, n), make([]string, n), make([]bool, n), make([]*string, n), make([]pgtype.UUID, n)
	for i := range messages {
		m := &messages[i]
		if a.ids[i] = m.ID; m.ID.IsZero() {
			a.ids[i] = lease.NewID()
		}
		if len(m.Headers) > 0 {
			text, err := json.Marshal(m.Headers)
			if err != nil {
				return nil, &outbox.InvalidError{Field: "headers", Problem: err.Error()}
			}
			head := string(text)
			heads[i] = &head
		}
		topics[i], payloads[i], keys[i], ordered[i], ids[i] = m.Topic, m.Payload, m.Key, m.Ordered, uuid(a.ids[i])
		if m.Payload == nil {
			payloads[i] = []byte{}
		}
	}
	a.args = []any{topics, payloads, keys, ordered, heads, ids}
	if n == 1 {
		a.text, a.args = appendText, []any{topics[0], payloads[0], keys[0], ordered[0], heads[0], ids[0]}
	}
	return a, nil
}

// Append is part of [outbox.Store], in a transaction of its own. [Outbox.AppendTx] is in the caller's.
func (o *Outbox) Append(ctx context.Context, messages []outbox.Message) ([]fence.ID, error) {
	a, err := newAppending(messages)
	if err != nil {
		return nil, err
	}
	if err := o.one(ctx, "append", fence.ID{}, []any{nil}, a.text, a.args...); err != nil {
		return nil, err
	}
	return a.ids, nil
}

// one runs a statement that returns one row, in a transaction of its own, again where it met others at the same rows.
func (o *Outbox) one(ctx context.Context, op string, id fence.ID, dest []any, text string, args ...any) error {
	if err := o.store.enter(op); err != nil {
		return o.store.outboxFailed(op, id, false, err)
	}
	defer o.store.leave()
	return o.store.outboxFailed(op, id, true, o.store.operations.again(ctx, op, func() error { return o.store.row(ctx, op, dest, text, args...) }))
}

// headersOf reads what was appended.
func headersOf(text []byte) (map[string]string, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var headers map[string]string
	err := json.Unmarshal(text, &headers)
	return headers, err
}

// exact is an interval to the microsecond, 0 included.
func exact(d time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: d.Microseconds(), Valid: true}
}
