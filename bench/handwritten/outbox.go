package handwritten

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// OutboxSchema makes an outbox as many applications have one, with a state, a claim and its end.
const OutboxSchema = `CREATE TABLE hand_outbox (position bigserial PRIMARY KEY, id uuid NOT NULL UNIQUE, topic text NOT NULL, key text NOT NULL, headers jsonb, payload bytea NOT NULL, state smallint NOT NULL DEFAULT 1, claim uuid, until timestamptz);
CREATE INDEX hand_outbox_pending ON hand_outbox (position) WHERE state = 1`

const (
	outboxClaim = `UPDATE hand_outbox o SET state = 2, claim = $1, until = clock_timestamp() + interval '30 seconds'
		FROM (SELECT position FROM hand_outbox WHERE state = 1 ORDER BY position LIMIT $2 FOR UPDATE SKIP LOCKED) c WHERE o.position = c.position RETURNING o.position, o.id, o.topic, o.key, o.headers, o.payload`
	outboxSettle = `UPDATE hand_outbox SET state = 3 WHERE position = ANY ($1) AND claim = $2 AND state = 2`
)

// AppendMessage writes a message in the caller's transaction.
func AppendMessage(ctx context.Context, tx pgx.Tx, id [16]byte, topic, key string, payload []byte) error {
	_, err := tx.Exec(ctx, `INSERT INTO hand_outbox (id, topic, key, headers, payload) VALUES ($1, $2, $3, $4, $5)`, id, topic, key, nil, payload)
	return err
}

// FillMessages writes so many messages with ids of the server's.
func FillMessages(ctx context.Context, pool *pgxpool.Pool, topic string, payload []byte, n int) error {
	_, err := pool.Exec(ctx, `INSERT INTO hand_outbox (id, topic, key, payload) SELECT gen_random_uuid(), $1, '', $2 FROM generate_series(1, $3::int)`, topic, payload, n)
	return err
}

// message is what a relay needs to publish one.
type message struct {
	position   int64
	id         [16]byte
	topic, key string
	headers    []byte
	payload    []byte
}

// RelayMessages claims up to limit messages, durably, and records them as sent, which is durable too, and returns how many there were.
func RelayMessages(ctx context.Context, pool *pgxpool.Pool, claim [16]byte, limit int) (int, error) {
	rows, err := pool.Query(ctx, outboxClaim, claim, limit)
	if err != nil {
		return 0, err
	}
	messages, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m message, err error) {
		err = row.Scan(&m.position, &m.id, &m.topic, &m.key, &m.headers, &m.payload)
		return m, err
	})
	if err != nil || len(messages) == 0 {
		return 0, err
	}
	positions := make([]int64, len(messages))
	for i := range messages {
		positions[i] = messages[i].position
	}
	tag, err := pool.Exec(ctx, outboxSettle, positions, claim)
	if err == nil && tag.RowsAffected() != int64(len(positions)) {
		err = fmt.Errorf("handwritten: %d of %d were settled", tag.RowsAffected(), len(positions))
	}
	return len(positions), err
}
