package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

// Outbox keeps messages in the store's file, beside the leases, the operations, the holds and the tables of an application: what the application writes and the message
// about it share one commit, see [Outbox.AppendTx]. What it tells is durable, and time is the authority's.
//
// Its writes go through the store's writer, together with whatever else is waiting, and wait for its turn among processes. Each call is one transaction, but for
// [Outbox.Retry], [Outbox.Replay] and [Outbox.Prune]. A call about a thousand messages, or one that appends some megabytes, lets every renewal of a lease wait for some tens
// of milliseconds. A claim looks at each topic that has something pending, which costs some microseconds each, and never at what was delivered, is dead, or stands behind
// the first message of an ordered key that cannot be claimed.
//
// What was appended after a copy of the file was made is not in the copy, and what was delivered after it is pending there: relays of a file that was restored from one
// publish that again. Safe for concurrent use.
type Outbox struct{ store *Store }

var (
	_ outbox.Store  = (*Outbox)(nil)
	_ outbox.Office = (*Outbox)(nil)
	_ outbox.Waker  = (*Outbox)(nil)
)

// Outbox returns the messages that the store's file keeps. They end with the store.
func (s *Store) Outbox() *Outbox { return &Outbox{store: s} }

// Guarantees implements [outbox.Store].
func (o *Outbox) Guarantees() outbox.Guarantees {
	return outbox.Guarantees{Store: "sqlite", Durable: true, InTransaction: true}
}

// mailBatch is what a transaction does with messages.
type mailBatch struct{ *txWork }

// write runs f in the writer's next transaction, with weight messages to handle at most.
func (o *Outbox) write(ctx context.Context, op string, weight int, f func(*mailBatch) error) error {
	return asOutboxError(o.store.writer.do(ctx, &request{op: op, weight: weight, do: func(b *batch) error {
		mb := &mailBatch{b.work()}
		err := f(mb)
		if mb.err != nil {
			return b.fail(mb.err)
		}
		b.wrote = b.wrote || mb.wrote
		return err
	}}, false))
}

// read runs f on one state of the file, without any lock.
func (o *Outbox) read(ctx context.Context, op string, f func(*mailBatch) error) error {
	prepared, err := o.statements(ctx)
	if err != nil {
		return &outbox.UnavailableError{Op: op, Err: o.store.describe(err)}
	}
	return asOutboxError(o.store.readWork(ctx, op, prepared, func(w *txWork) error { return f(&mailBatch{w}) }))
}

// statements are prepared for readers when they are first needed, so that a process without messages pays for none.
func (o *Outbox) statements(ctx context.Context) (*Prepared, error) {
	s := o.store
	s.ofReaders.Lock()
	defer s.ofReaders.Unlock()
	if err := s.writer.why(); err != nil || s.mailStmts != nil {
		return s.mailStmts, err
	}
	prepared, err := prepareTexts(ctx, s.readDB, []string{readClock, selectPaused, everyTopic, namedTopics, selectLeads, selectFollowers, selectDeliveries})
	if err == nil {
		s.mailStmts = prepared
	}
	return prepared, err
}

// bytesOfOne is how much of a payload weighs as much as a message.
const bytesOfOne = 64 << 10

// Append implements [outbox.Store]. An application that writes something besides uses [Outbox.AppendTx].
func (o *Outbox) Append(ctx context.Context, messages []outbox.Message) ([]fence.ID, error) {
	mine, err := ownMessages(messages)
	if err != nil {
		return nil, err
	}
	weight := len(messages)
	for i := range mine.messages { // the writer may read them after the caller's context has ended
		m := &mine.messages[i]
		m.Headers, m.Payload = maps.Clone(m.Headers), bytes.Clone(m.Payload)
		weight += len(m.Payload) / bytesOfOne
	}
	ids := mine.ids()
	err = o.write(ctx, "append", weight, func(b *mailBatch) error { return b.append(mine) })
	o.store.mail.wake()
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// Claim implements [outbox.Store]. A relay that finds nothing to do has only read, without any lock, and payloads are read after the writer's turn has ended.
func (o *Outbox) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Batch, error) {
	if err := req.Check(); err != nil {
		return outbox.Batch{}, err
	}
	req.Topics = slices.Compact(slices.Sorted(slices.Values(req.Topics)))
	o.store.mail.claimed(o.store.kernel())
	got := outbox.Batch{Claim: req.Claim, Left: req.TTL}
	found, err := o.some(ctx, "claim", req)
	if err != nil || !found {
		return got, err
	}
	var taken []letter
	var until int64
	var dead int
	err = o.write(ctx, "claim", req.Limit, func(b *mailBatch) (err error) {
		taken, dead, err = b.claim(&req)
		until = b.now + int64(req.TTL)
		return err
	})
	if err != nil {
		return outbox.Batch{}, err // the writer may still be at work on it: nothing else is even read
	}
	if got.Dead = dead; len(taken) == 0 {
		return got, nil
	}
	err = o.read(ctx, "claim", func(b *mailBatch) (err error) {
		got.Deliveries, err = b.deliveries(taken)
		got.Left = time.Duration(until - b.now)
		return err
	})
	if err != nil { // it is claimed, and nobody has got it
		return outbox.Batch{}, &outbox.UnknownError{Op: "claim", Err: err}
	}
	return got, nil
}

// some reports whether there is something for the claim.
func (o *Outbox) some(ctx context.Context, op string, req outbox.ClaimRequest) (found bool, err error) {
	req.Limit = 1
	err = o.read(ctx, op, func(b *mailBatch) error {
		c, err := b.choose(&req)
		found = err == nil && len(c.taken)+len(c.buried) > 0
		return err
	})
	return found, err
}

// Settle implements [outbox.Store].
func (o *Outbox) Settle(ctx context.Context, req outbox.SettleRequest) (outbox.Settled, error) {
	if err := req.Check(); err != nil {
		return outbox.Settled{}, err
	}
	req.Verdicts = slices.Clone(req.Verdicts)
	var done outbox.Settled
	err := o.write(ctx, "settle", len(req.Verdicts), func(b *mailBatch) (err error) {
		done, err = b.settle(&req)
		return err
	})
	o.store.mail.wake()
	if err != nil {
		return outbox.Settled{}, err // the writer may still be at work on it: not even read
	}
	return done, nil
}

// listOf is a list as statements take it.
func listOf[T any](b *txWork, values []T) (string, error) {
	list, err := json.Marshal(values)
	if err != nil {
		return "", b.fail(err)
	}
	return string(list), nil
}

// positions reads a column of positions.
func (b *mailBatch) positions(text string, args ...any) (found []int64, err error) {
	err = b.each(func(rows *sql.Rows) error {
		var position int64
		err := rows.Scan(&position)
		found = append(found, position)
		return err
	}, text, args...)
	return found, err
}

// all is exec where as many rows must move as are listed.
func (b *mailBatch) all(text string, positions []int64, args ...any) error {
	if len(positions) == 0 {
		return nil
	}
	list, err := listOf(b.txWork, positions)
	if err != nil {
		return err
	}
	n, err := b.exec(text, append([]any{list}, args...)...)
	if err == nil && n != int64(len(positions)) {
		err = b.fail(affectedError(n))
	}
	return err
}
