package sqlite

import (
	"bytes"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
)

// appending is what is to be appended, in a slice that the caller does not have.
type appending struct {
	messages []outbox.Message // with ids
	chosen   []string         // the ids that the caller has chosen: others cannot be known
}

// ownMessages checks messages and gives those an id that have none.
func ownMessages(messages []outbox.Message) (*appending, error) {
	if err := outbox.CheckAppend(messages); err != nil {
		return nil, err
	}
	a := &appending{messages: slices.Clone(messages)}
	for i := range a.messages {
		if m := &a.messages[i]; m.ID.IsZero() {
			m.ID = lease.NewID()
		} else {
			a.chosen = append(a.chosen, hex.EncodeToString(m.ID[:]))
		}
	}
	return a, nil
}

func (a *appending) ids() []fence.ID {
	ids := make([]fence.ID, len(a.messages))
	for i := range a.messages {
		ids[i] = a.messages[i].ID
	}
	return ids
}

const (
	selectKnown = `SELECT m.id, m.topic, m.key, m.ordered, coalesce(d.headers, ''), coalesce(d.payload, x'') FROM json_each(?1) j CROSS JOIN tenure_message m ON m.id = unhex(j.value)
		LEFT JOIN tenure_message_body d ON d.position = m.position`
	insertMessage = `INSERT INTO tenure_message (position, id, topic, key, ordered, lead, at, size, appended)
		VALUES (1 + max((SELECT floor FROM tenure_outbox), coalesce((SELECT max(position) FROM tenure_message), 0)), ?1, ?2, ?3, ?4,
		CASE WHEN ?4 = 0 THEN 1 WHEN EXISTS (SELECT 1 FROM tenure_message WHERE topic = ?2 AND key = ?3 AND ordered = 1 AND state = 1) THEN 0 ELSE 2 END, ?5, ?6, ?5) RETURNING position`
	insertMessageBody = `INSERT INTO tenure_message_body (position, headers, payload) VALUES (?1, ?2, ?3)`
)

// append writes the messages whose ids are not known, or nothing. Positions rise in the order of commits, because SQLite has one writer at a time.
func (b *mailBatch) append(a *appending) error {
	known, err := b.known(a.chosen)
	if err != nil {
		return err
	}
	messages := a.messages
	for i := range messages {
		if of, ok := known[messages[i].ID]; ok {
			if what := differs(&of, &messages[i]); what != "" {
				return &outbox.MismatchError{ID: of.ID, What: what}
			}
		}
	}
	for i := range messages {
		if _, ok := known[messages[i].ID]; ok {
			continue
		}
		if err := b.insert(&messages[i]); err != nil {
			return err
		}
	}
	return nil
}

// known reads the messages that have one of the ids.
func (b *mailBatch) known(ids []string) (map[fence.ID]outbox.Message, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	list, err := listOf(b.txWork, ids)
	if err != nil {
		return nil, err
	}
	found := map[fence.ID]outbox.Message{}
	err = b.each(func(rows *sql.Rows) error {
		var m outbox.Message
		var id []byte
		var headers string
		err := rows.Scan(&id, &m.Topic, &m.Key, &m.Ordered, &headers, &m.Payload)
		if err == nil {
			m.Headers, err = asHeaders(headers)
		}
		m.ID = asID(id)
		found[m.ID] = m
		return err
	}, selectKnown, list)
	return found, err
}

// differs says what of two messages with one id differs, or "".
func differs(a, b *outbox.Message) string {
	switch {
	case a.Topic != b.Topic:
		return "topic"
	case a.Key != b.Key:
		return "key"
	case a.Ordered != b.Ordered:
		return "order"
	case !maps.Equal(a.Headers, b.Headers):
		return "headers"
	case !bytes.Equal(a.Payload, b.Payload):
		return "payload"
	}
	return ""
}

func (b *mailBatch) insert(m *outbox.Message) error {
	headers := ""
	if len(m.Headers) > 0 {
		text, err := json.Marshal(m.Headers)
		if err != nil {
			return b.fail(err)
		}
		headers = string(text)
	}
	var position int64
	if err := b.conn.row(insertMessage, m.ID[:], m.Topic, m.Key, m.Ordered, b.now, len(m.Payload)).Scan(&position); err != nil {
		return b.fail(err)
	}
	b.wrote = true
	if headers == "" && len(m.Payload) == 0 {
		return nil
	}
	payload := m.Payload
	if payload == nil {
		payload = []byte{} // an empty column, not NULL
	}
	return b.one(insertMessageBody, position, headers, payload)
}

func asHeaders(text string) (headers map[string]string, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &headers)
	}
	return headers, err
}
